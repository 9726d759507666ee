# SPDX-License-Identifier: MIT
"""Sections of the report about strategies: SMC's figures and tables, traces, HBFT's figures."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from statistics import median

from smc import FED

MakeSection = Callable[..., object]

DEFAULT = "decay"  # what strategy `auto` takes
BOUNDS = ("bound", "oracle", "oracle-count")

HISTASE = (
    "Under async, which learns of writes only at the checkpoint, histase predicts for the next "
    "interval."
)


def _of(lines: list[dict], table: str) -> list[dict]:
    return [line for line in lines if line["table"] == table]


def _programs(lines: list[dict]) -> list[str]:
    return list(dict.fromkeys(line["program"] for line in lines if "program" in line))


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"


def _best(lines: list[dict], key: str, lowest: bool = True) -> dict | None:
    """Of lines that stand beside each other: that of the best strategy, bounds left out."""
    found = [x for x in lines if x["strategy"] not in BOUNDS and key in x]
    return (min if lowest else max)(found, key=lambda x: x[key], default=None)


def _of_strategy(lines: list[dict], name: str = DEFAULT) -> dict | None:
    return next((x for x in lines if x.get("strategy") == name), None)


def _below(where: list[str], lines: list[dict]) -> str:
    """What stands below a table of these lines, whose best cells are marked."""
    if not _of_strategy(lines):
        return f"* the best strategy. {DEFAULT}, the default, was not measured."
    if not where:
        return f"* the best strategy. The default, {DEFAULT}, is the best everywhere."
    return f"* the best strategy. The default, {DEFAULT}, is not the best: {'; '.join(where)}."


def _beaten(where: str, best: dict, default: dict | None, key: str, unit: str) -> list[str]:
    """Nothing, if the default is as good."""
    if not default or key not in default or default[key] == best[key]:
        return []
    mine, its = f"{default[key]:.2f}{unit}", f"{best[key]:.2f}{unit}"
    if mine == its:
        return []
    return [f"{where}: {best['strategy']} {its}, {DEFAULT} {mine}"]


def _groups(lines: list[dict]) -> list[list[dict]]:
    """Rows of figure 2 that differ in their strategy alone."""
    found: dict[tuple[str, ...], list[dict]] = {}
    for line in lines:
        if "ratio" in line and line["strategy"] not in BOUNDS:
            place = (line["program"], line["tracker"], line["surface"])
            found.setdefault(place, []).append(line)
    return list(found.values())


def _least_lost(lines: list[dict]) -> tuple[list[dict], str]:
    """The best lines, and what to say below: where the default is none of them."""
    found, where = [], []
    several = len(_programs(lines)) > 1
    for group in _groups(lines):
        best, mine = _best(group, "ratio", lowest=False), _of_strategy(group)
        if not best:
            continue
        found.append(best)
        if not mine or mine["ratio"] == best["ratio"]:
            continue
        at = f"{best['program']} " if several else ""
        text = f"{at}{best['tracker']} {best['surface']}: {best['strategy']} loses "
        text += f"{_percent(1 - best['ratio'])}, {DEFAULT} {_percent(1 - mine['ratio'])}"
        near = mine["ratio_most"] >= best["ratio_least"]
        where.append(text + (" (their spreads overlap)" if near else ""))
    return found, _below(where, lines)


def prices(lines: list[dict]) -> str:
    """This host's, by tracker, as the sessions of strategies have measured them."""
    found = []
    for tracker in dict.fromkeys(x.get("tracker", "") for x in lines):
        mine = [x for x in lines if x.get("tracker") == tracker and x.get("price_copy")]
        if not mine:
            continue
        names = ("fault", "copy", "protect", "open")
        fault, copy, protect, opening = (median(x[f"price_{n}"] for x in mine) for n in names)
        found.append(
            f"{tracker}: a fault {fault:,.0f}, a copy {copy:,.0f}, a protection {protect:,.0f}, "
            f"an opening {opening:,.0f}, so an undercopied page {(fault + protect) / copy:.1f}"
        )
    if not found:
        return ""
    return (
        "Prices measured here, in cycles per page, and what an undercopied page weighs by them if "
        f"an overcopied one weighs 1: {'; '.join(found)}."
    )


def figure2(lines: list[dict], section: MakeSection) -> list[object]:
    """One table per program: what each variant loses, with its checkpoints and its memory."""
    found = []
    for program in _programs(_of(lines, "smc")):
        mine = [line for line in _of(lines, "smc") if line["program"] == program]
        unit = next((line["unit"] for line in mine if "unit" in line), "requests")
        best, below = _least_lost(mine)
        rows = []
        for line in mine:
            if "missing" in line:
                rows.append([line["row"], f"not here: {first_line(line['missing'])}"])
                continue
            cells = [line["row"], f"{line['per_second']:,.0f}"]
            if "ratio" in line:
                low, high = 1 - line["ratio_most"], 1 - line["ratio_least"]
                cells += [
                    _percent(1 - line["ratio"]) + (" *" if line in best else ""),
                    f"{100 * low:.0f} to {100 * high:.0f}",
                    f"{line['processor_ratio']:.2f}x",
                    f"{line['checkpoints_per_second']:,.0f}",
                    f"{line['checkpoints_per_request']:.3f}",
                    f"{line['pages_per_checkpoint']:.1f}",
                    f"{line['checkpoint_us']:.1f}",
                    f"{line['memory_ratio']:.2f}",
                    f"{line['engine_kib'] / 1024:.1f}",
                ]
            rows.append(cells)
        head = ["tracker, surface, strategy", f"{unit}/s", "lost", "spread", "processor"]
        head += ["checkpoints/s"]
        head += ["per request", "pages each", "us each", "memory", "engine MiB"]
        text = (
            "A checkpoint per wake-up: throughput lost beside the bare server of the same round "
            "(medians), least and most; processor time per request and memory (proportional set "
            "size) as multiples of the bare server's; what was taken. The best strategy of each "
            f"tracker and surface is marked. {HISTASE} {prices(mine)}"
        )
        if any(line["tracker"] == FED for line in mine):
            text += f" {FED}: the processes have the capabilities that a feed takes."
        title = f"SMC Figure 2: {program}"
        found.append(section(title, text.strip(), head, rows, f"smc_{program}.png", below))
    return found


def _mean_lost(ratios: list[float]) -> str:
    """SMC's geometric mean: of what is lost, over the programs."""
    lost = [max(100 * (1 - ratio), 0.1) for ratio in ratios]
    return f"{exp(sum(map(log, lost)) / len(lost)):.1f} %"


def table2(lines: list[dict], section: MakeSection) -> list[object]:
    """All programs beside each other, with the geometric mean; the baselines in the last row."""
    mine = _of(lines, "smc")
    programs = _programs(mine)
    best, below = _least_lost(mine)
    marked = {(x["program"], x["row"]) for x in best}
    rows = []
    for row in dict.fromkeys(line["row"] for line in mine if line["row"] != "bare"):
        found = {x["program"]: x["ratio"] for x in mine if x["row"] == row and "ratio" in x}
        cells = [
            _percent(1 - found[p]) + (" *" if (p, row) in marked else "")
            if p in found
            else "not here"
            for p in programs
        ]
        rows.append([row, *cells, _mean_lost(list(found.values())) if found else ""])
    bare = {x["program"]: x for x in mine if x["row"] == "bare" and "per_second" in x}
    units = [f"{bare[p]['per_second']:,.0f} {bare[p]['unit']}/s" if p in bare else "" for p in
             programs]  # fmt: skip
    if not rows:
        return []
    text = (
        "Throughput lost at a checkpoint per wake-up, and the geometric mean over the programs (of "
        "losses, as in the paper; less than 0.1 % counts as that); the last row has the bare "
        "servers' rates. `oracle-count` only copies as many pages as were written: no strategy can "
        "lose less. In the paper: surface program COW 44.9 %, GSpec 30.8 %, oracle 15.6 %; surface "
        "all 59.8 %, 42.8 %, 18.9 %."
    )
    head = ["tracker, surface, strategy", *programs, "mean"]
    return [section("SMC Figure 2, Tables 2 and 3: all programs", text, head,
                    [*rows, ["bare", *units]], "", below)]  # fmt: skip


def memory(lines: list[dict], section: MakeSection) -> list[object]:
    """SMC 7.4: the size of a checkpoint, and resident memory beside the bare server and `none`."""
    mine = [x for x in _of(lines, "smc") if "memory_ratio" in x]
    rows = []
    for line in mine:
        plain = [
            x
            for x in mine
            if x["strategy"] == "none"
            and all(x[k] == line[k] for k in ("program", "tracker", "surface"))
        ]
        beside = f"{line['memory_kib'] / plain[0]['memory_kib']:.2f}x" if plain else ""
        rows.append(
            [line["program"], line["row"], f"{4 * line['pages_per_checkpoint']:,.0f}"]
            + [f"{line['memory_kib'] / 1024:.1f}", f"{line['memory_ratio']:.2f}x", beside]
            + [f"{line['engine_kib'] / 1024:.1f}"]
        )
    if not rows:
        return []
    text = (
        "What a checkpoint copies, and the resident memory (proportional set size) of all "
        "processes of the server, beside the bare server's and beside the same without a strategy."
    )
    head = ["program", "tracker, surface, strategy", "KiB per checkpoint", "resident MiB"]
    head += ["beside bare", "beside none", "engine MiB"]
    return [section("SMC 7.4: memory", text, head, rows, "memory.png")]


def alternate(lines: list[dict], section: MakeSection) -> list[object]:
    mine = [x for x in _of(lines, "alternate") if x["strategy"] != "bound"]
    rows = []
    for order in dict.fromkeys(x["order"] for x in mine):
        for name in dict.fromkeys(x["strategy"] for x in mine):
            here = {x["costs"]: x for x in mine if (x["order"], x["strategy"]) == (order, name)}
            one = here["smc"]
            cells = [f"types {order}", name]
            cells += [f"{one[f'alone_{key}']:.1f} to {one[key]:.1f}" for key in ("op", "up")]
            costs = ((x["alone_to_oracle"], x["to_oracle"]) for x in here.values())
            cells += [f"{alone:.2f}x to {keyed:.2f}x" for alone, keyed in costs]
            rows.append(cells)
    if not rows:
        return []
    text = (
        "Two types of requests that share 5 pages and have 15 of their own each, by turns or drawn "
        "by a coin: one working set for both, to one for each (cairn_context). Pages per interval; "
        "then the cost as a multiple of copying exactly the written pages, by SMC's weights and by "
        "each tracker's own prices. Where a way out and back costs more than copying a page for "
        "nothing, decay keeps the other type's pages hot as well, and contexts change little."
    )
    head = ["order", "strategy", "overcopied", "undercopied", "cost (SMC)", "async", "uffd"]
    return [section("Contexts: two types of requests", text, [*head, "mprotect"], rows)]


def times_of(line: dict) -> str:
    return f"{line['slowdown']:.2f}x ({line['processor']:.2f}x)"


def figure3(lines: list[dict], section: MakeSection) -> list[object]:
    mine = _of(lines, "figure3")
    if not mine:
        return []
    every = sorted({line["every"] for line in mine if "every" in line})
    best, where = [], []
    for tracker in dict.fromkeys(x["tracker"] for x in mine if "tracker" in x):
        for n in every:
            here = [x for x in mine if x.get("tracker") == tracker and x.get("every") == n]
            least = _best(here, "slowdown")
            if least:
                best.append(least)
                where += _beaten(f"{tracker}, n = {n}", least, _of_strategy(here), "slowdown", "x")
    rows = []
    for row in dict.fromkeys(line["row"] for line in mine):
        cells = {line["every"]: line for line in mine if line["row"] == row and "site" in line}
        if not cells:
            why = next(x["missing"] for x in mine if x["row"] == row and "missing" in x)
            rows.append([row, first_line(why)])
            continue
        pages = max(line["pages_per_checkpoint"] for line in cells.values())
        rows.append(
            [row]
            + [
                times_of(cells[n]) + (" *" if cells[n] in best else "") if n in cells else ""
                for n in every
            ]
            + [f"{pages:.1f}"]
        )
    site = next((line["site"] for line in mine if "site" in line), "")
    origin = "as cairn profile found it" if site.startswith("func:0x") else "built with symbols"
    text = (
        f"Run time beside the bare program, with a checkpoint at every n-th sequence ({site}, "
        f"{origin}); in brackets the processor time, which a busy machine changes less."
    )
    head = ["tracker, strategy", *(f"n = {n}" for n in every), "pages each"]
    title = "SMC Figure 3: hmmsearch"
    return [section(title, text, head, rows, "figure3.png", _below(where, mine) if best else "")]


def recovery(lines: list[dict], section: MakeSection) -> list[object]:
    mine = _of(lines, "recovery")
    rows = []
    for line in mine:
        if "missing" in line:
            rows.append([line["row"], f"not here: {first_line(line['missing'])}"])
            continue
        spread = f"{line['least']:.0f} to {line['most']:.0f}"
        rows.append([line["row"], str(line["crashes"]), f"{line['microseconds']:.0f}", spread])
    if not rows:
        return []
    text = "From the signal of a crash to the program's next instruction."
    head = ["server, tracker", "crashes", "us", "least to most"]
    return [section("SMC 7.5: time of a recovery", text, head, rows, "recovery.png")]


def wmp(lines: list[dict], section: MakeSection) -> list[object]:
    """SMC's Table 4 in one: the cost of each strategy on each trace, and what is best."""
    mine = [x for x in _of(lines, "accuracy") if x.get("costs") == "smc" and "to_oracle" in x]
    programs = _programs(mine)
    cost = {(x["program"], x["strategy"]): x["to_oracle"] for x in mine}
    real = [n for n in dict.fromkeys(x["strategy"] for x in mine) if n not in BOUNDS]
    where = []
    for program in programs:
        here = [x for x in mine if x["program"] == program]
        if least := _best(here, "to_oracle"):
            where += _beaten(program, least, _of_strategy(here), "to_oracle", "x")
    rows = []
    for name in real:
        cells = []
        for program in programs:
            best = min(cost.get((program, other), 99) for other in real)
            value = cost.get((program, name))
            cells.append(f"{value:.2f}x{' *' if value == best else ''}" if value else "")
        rows.append([name, *cells])
    if not rows:
        return []
    text = (
        "The cost of all faults and copies by SMC's weights (a lazy copy 8, an eager one 1) as a "
        "multiple of copying exactly the written pages; the least of a trace is marked. The plot "
        "has the trackers' own prices as well, by which a page's way out and back costs something, "
        "and the bound of what is possible if the future is known and each page opened by itself."
    )
    head = ["strategy", *programs]
    return [section("Strategies on traces", text, head, rows, "accuracy.png", _below(where, mine))]


MODELS = ("async", "uffd", "mprotect")


def _model_of(line: dict) -> str:
    return line["costs"].partition(":")[0]


def _accuracy_row(lines: list[dict], best: list[dict]) -> list[str]:
    """Of one strategy: `lines` by cost model, SMC's first."""
    line = lines[0]
    cells = [line["strategy"], *[""] * 6]

    def marked(one: dict | None, key: str, unit: str = "") -> str:
        if not one or key not in one:
            return ""
        star = any(one is x and key == k for x, k in best)
        return f"{one[key]:.{2 if unit else 1}f}{unit}{' *' if star else ''}"

    others = [next((x for x in lines if _model_of(x) == model), None) for model in MODELS]
    if "wmp_smc" in line:
        cells[1:] = [f"{line[key]:.1f}" for key in ("op", "up", "mp")]
        cells += [marked(line, "wmp_smc")]
        cells += [f"{line[key]:.2f}" for key in ("recall", "precision")]
    cells += [marked(one, "to_oracle", "x") for one in (line, *others)]
    cells += [marked(one, "wmp_host") for one in others]
    return cells + [f"{line['own_cycles']:,.0f}" if "own_cycles" in line else ""]


def accuracy(lines: list[dict], section: MakeSection) -> list[object]:
    """Tables 2 to 4 and HBFT's Figure 12, by a cost model each; the best of a program is marked."""
    found = []
    mine = [line for line in _of(lines, "accuracy") if "program" in line]
    for program in _programs(mine):
        here = [x for x in mine if x["program"] == program]
        best, where = [], []
        for model in ("smc", *MODELS):
            group = [x for x in here if _model_of(x) == model]
            for key in ("wmp_smc" if model == "smc" else "wmp_host", "to_oracle"):
                if not (least := _best(group, key)):
                    continue
                best += [(x, key) for x in group
                         if x["strategy"] not in BOUNDS and x.get(key) == least[key]]  # fmt: skip
                what = "cost" if key == "to_oracle" else "WMP"
                unit = "x" if key == "to_oracle" else ""
                where += _beaten(f"{what} ({model})", least, _of_strategy(group), key, unit)
        smc = [x for x in here if _model_of(x) == "smc"]
        rows = [
            _accuracy_row([x, *(y for y in here if y["strategy"] == x["strategy"])], best)
            for x in smc
        ]
        intervals = smc[0]["intervals"] if smc else 0
        written = smc[0]["written"] if smc else 0
        text = (
            f"A recorded run replayed: {intervals} intervals of {written:.1f} pages. Means per "
            "interval; WMP with SMC's weights; then the cost of all faults and copies as a "
            "multiple of copying exactly the written pages, by SMC's weights and by each "
            "tracker's prices; WMP by these, in eager copies; the strategy's own run time, in "
            f"cycles. The least of a column is marked. {HISTASE}"
        )
        head = ["strategy", "OP", "UP", "MP", "WMP", "recall", "precision"]
        head += ["cost (SMC)", *MODELS, *(f"WMP ({model})" for model in MODELS), "own cycles"]
        title = f"Strategies on the trace of {program}"
        found.append(section(title, text, head, rows, "", _below(where, here)))
    if found:
        title, text = "HBFT Figure 12: recall and precision", "As in the tables above."
        found.append(section(title, text, [], [], "recall.png"))
    return found


def scored(lines: list[dict], section: MakeSection) -> list[object]:
    """SMC's Table 4 as the paper took it: all strategies scored while the server runs."""
    found = []
    for program in _programs(_of(lines, "meta")):
        mine = [x for x in _of(lines, "meta") if x["program"] == program]
        best, where, rows = [], [], []
        for tracker in dict.fromkeys(x["tracker"] for x in mine):
            here = [x for x in mine if x["tracker"] == tracker and "up" in x]
            for key, what in (("wmp_smc", "SMC's weights"), ("wmp_host", "the prices here")):
                if least := _best(here, key):
                    best.append((least, key))
                    mine_too = _of_strategy(here)
                    where += _beaten(f"{tracker}, by {what}", least, mine_too, key, "")
        for line in mine:
            if "missing" in line:
                rows.append([line["tracker"], f"not here: {first_line(line['missing'])}"])
                continue
            cells = [f"{line['tracker']} {line['strategy']}"]
            cells += [f"{line[key]:.2f}" for key in ("op", "up", "mp")]
            for key in ("wmp_smc", "wmp_host"):
                star = any(line is x and key == k for x, k in best)
                cells.append(f"{line[key]:.2f}{' *' if star else ''}")
            rows.append([*cells, f"{line['cycles']:,.0f}", f"{line['own_cycles']:,.0f}"])
        text = (
            "Strategy meta: plain copy-on-write, by which all others are scored in the same run. "
            "Means per interval: overcopied and undercopied pages, their sum, the sum weighted by "
            "SMC's weights and by the prices here; what tracking and copying would have cost, and "
            f"the strategy's own run time, in cycles. {prices(mine)}"
        )
        head = ["tracker, strategy", "OP", "UP", "MP", "WMP (SMC)", "WMP (here)", "cycles"]
        title = f"SMC Table 4: {program}, scored live"
        below = _below(where, mine)
        found.append(section(title, text.strip(), [*head, "own cycles"], rows, "", below))
    return found


def hbft(lines: list[dict], section: MakeSection) -> list[object]:
    titles = {
        "hbft4": ("HBFT Figure 4: page reuse", "coverage", "Share of writes that go to the ..."),
        "hbft5": ("HBFT Figure 5: run lengths", "pages_in_runs", "Written pages in runs of ..."),
        "hbft6": (
            "HBFT Figure 6: history similarity",
            "delta_stride_at_most",
            "Share of intervals whose stride differs from the last one's by ...",
        ),
    }
    found = []
    for table, (title, key, text) in titles.items():
        mine = [line for line in _of(lines, table) if "program" in line]
        if not mine:
            continue
        columns = list(mine[0][key])
        rows = [
            [line["program"], *(f"{line[key].get(column, 0):.3f}" for column in columns)]
            for line in mine
        ]
        names = [f"first {float(c):.0%} of pages" for c in columns] if table == "hbft4" else columns
        found.append(section(title, text, ["trace", *names], rows, f"{table}.png"))
    return found


def sweep(lines: list[dict], section: MakeSection) -> list[object]:
    """How much a strategy's cost depends on its parameters: least and most over each sweep."""
    mine = [line for line in _of(lines, "sweep") if line["row"] != "bound"]
    if not mine:
        return []
    programs = _programs(mine)
    costs: dict[tuple[str, str], list[float]] = {}
    for line in mine:
        strategy, _, parameter = line["row"].partition(":")
        for name in {strategy, f"{strategy}: {parameter.partition('=')[0]}".rstrip(": ")}:
            costs.setdefault((name, line["program"]), []).append(line["to_oracle"])
    rows = []
    for name in sorted(dict.fromkeys(name for name, _ in costs)):
        here = {p: costs[name, p] for p in programs if (name, p) in costs}
        cells = [
            f"{min(here[p]):.2f} to {max(here[p]):.2f}x" if p in here else "" for p in programs
        ]
        ratios = [max(found) / min(found) for found in here.values()]
        mean = exp(sum(map(log, ratios)) / len(ratios))
        rows.append([name, *cells, f"{mean:.2f}x", f"{max(ratios):.2f}x"])
    text = (
        "Cost by SMC's weights, as a multiple of the oracle's, over a sweep of each parameter with "
        "the others at their defaults: least and most. A row without a parameter has all sweeps "
        "of the strategy together. Spread: the most divided by the least, as the geometric mean "
        "of the traces and in the worst of them. decay has no parameter."
    )
    head = ["strategy, parameter", *programs, "spread", "worst"]
    return [section("Sweeps of the strategies' parameters", text, head, rows, "sweep.png")]


def contexts(lines: list[dict], section: MakeSection) -> list[object]:
    mine = _of(lines, "contexts")
    if not mine:
        return []
    programs = _programs(mine)
    rows = []
    for row in dict.fromkeys(line["row"] for line in mine):
        cells = [row]
        for program in programs:
            found = [line for line in mine if line["row"] == row and line["program"] == program]
            cells.append(
                f"{found[0]['alone']:.2f}x to {found[0]['to_oracle']:.2f}x "
                f"({found[0]['contexts']} keys)"
                if found
                else ""
            )
        rows.append(cells)
    text = (
        "One working set for all, to one per key (cairn run --context), by SMC's weights as a "
        "multiple of the oracle's cost."
    )
    head = ["strategy, key", *programs]
    return [section("Working sets by context", text, head, rows, "contexts.png")]


def sections(lines: list[dict], section: MakeSection) -> list[object]:
    """`section` makes one: title, text, head, rows, plot."""
    makers = (table2, figure2, memory, figure3, recovery, scored, wmp, accuracy, hbft, sweep,
              contexts, alternate)  # fmt: skip
    return [one for make in makers for one in make(lines, section)]
