# SPDX-License-Identifier: MIT
"""What the programs compute that lmc_programs.py builds: inputs that are made up, the same each
time, and what a turn of the loop is at whose top a checkpoint is taken."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import hmmsearch
from smc import Settings

SCRIPT = """
-- Tables, strings and closures; os.clock is where checkpoints are taken.
local turns, seed = tonumber(arg[1]), 1
local function random(n)
	seed = (seed * 1103515245 + 12345) % 2147483648
	return seed % n + 1
end
local words, count, sum = {}, 0, 0
for turn = 1, turns do
	os.clock()
	for i = 1, 40 do
		local key = "k" .. random(400)
		words[key] = (words[key] or 0) + i
		if random(10) == 1 then
			words[key] = nil
		end
	end
	local sorted = {}
	for key, value in pairs(words) do
		sorted[#sorted + 1] = key .. "=" .. value
	end
	table.sort(sorted)
	sum = (sum * 31 + #table.concat(sorted, ",")) % 1000000007
end
print(turns, sum)
"""


@dataclass(frozen=True)
class Work:
    """
    A program's arguments, made in a folder; `at`: the site under `cairn run`, if it has one;
    `typed`: a file in that folder, its input.
    """

    arguments: Callable[[Path, Settings], list[str]]
    at: str
    per: str
    clean: str = ""  # what differs from run to run in its output
    typed: str = os.devnull


def _hmmer(folder: Path, settings: Settings) -> list[str]:
    command = hmmsearch.prepare(folder, 1_000 if settings.quick else hmmsearch.SEQUENCES)
    return ["-o", "/dev/stdout", *command[-2:]]


def _sqlite(folder: Path, settings: Settings) -> list[str]:
    return ["--verify", "--size", "10" if settings.quick else "50", ":memory:"]


def _lua(folder: Path, settings: Settings) -> list[str]:
    (folder / "turns.lua").write_text(SCRIPT)
    return [str(folder / "turns.lua"), "1000" if settings.quick else "8000"]


def _bzip2(folder: Path, settings: Settings) -> list[str]:
    chance = random.Random(5)
    words = ["".join(chance.choices("abcdefghij", k=chance.randrange(2, 9))) for _ in range(3000)]
    text = " ".join(chance.choices(words, k=200_000 if settings.quick else 4_000_000))
    (folder / "text").write_text(text)
    return ["-1", "-c", str(folder / "text")]


def _libquantum(folder: Path, settings: Settings) -> list[str]:
    return ["33" if settings.quick else "143", "5"]


PERL = """
# A hash, strings and regular expressions; time() is where checkpoints are taken.
my ($turns, $seed, $sum, %words) = ($ARGV[0], 1, 0);
sub draw { $seed = ($seed * 1103515245 + 12345) % 2147483648; return $seed % $_[0]; }
for (1 .. $turns) {
	my $now = time;
	$words{"k" . draw(300)} .= chr(97 + draw(26)) for 1 .. 30;
	for my $key (sort keys %words) {
		delete $words{$key} if length $words{$key} > 12 and $words{$key} =~ /a.*[b-f]/;
		$sum = ($sum * 31 + length $key) % 1000000007;
	}
}
print "$turns $sum\n";
"""


def _perl(folder: Path, settings: Settings) -> list[str]:
    (folder / "turns.pl").write_text(PERL)
    return [str(folder / "turns.pl"), "1000" if settings.quick else "20000"]


def _x264(folder: Path, settings: Settings) -> list[str]:
    """Frames of 176 x 144 with a pattern that moves."""
    chance, frames = random.Random(3), 10 if settings.quick else 150
    with (folder / "frames.yuv").open("wb") as f:
        noise = bytes(chance.randrange(256) for _ in range(4 * 176 * 144))
        for n in range(frames):
            at = 700 * n % (2 * 176 * 144)
            f.write(noise[at : at + 176 * 144] + bytes([96 + n % 64]) * (176 * 144 // 2))
    size = ["--demuxer", "raw", "--input-res", "176x144", "--fps", "25"]
    return [*size, "--quiet", "--muxer", "raw", "-o", "/dev/stdout", str(folder / "frames.yuv")]


def _gnugo(folder: Path, settings: Settings) -> list[str]:
    """A game against itself."""
    moves = ["genmove black", "genmove white"] * (3 if settings.quick else 20)
    (folder / "game").write_text("\n".join(["boardsize 9", *moves, "showboard", "quit\n"]))
    return ["--mode", "gtp", "--gtp-input", str(folder / "game"), "--seed", "1", "--level", "1"]


def _sjeng(folder: Path, settings: Settings) -> list[str]:
    position = "r1bqkb1r/pppp1ppp/2n2n2/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4 4"
    depth = 5 if settings.quick else 7
    words = ["xboard", "new", f"setboard {position}", f"sd {depth}", "go", "go", "quit\n"]
    (folder / "typed").write_text("\n".join(words))
    return []


WORKS = {
    "hmmer": Work(_hmmer, "func:p7_pli_NewSeq", "sequence", r"#.*"),
    "sqlite": Work(_sqlite, "", "statement", r"\d+\.\d+s"),
    "lua": Work(_lua, "func:os_clock", "turn"),
    "perl": Work(_perl, "func:Perl_pp_time", "turn"),
    "libquantum": Work(_libquantum, "func:quantum_decohere", "gate"),
    "x264": Work(_x264, "func:x264_8_encoder_encode", "frame"),
    "gnugo": Work(_gnugo, "func:attack", "call of attack()"),
    "sjeng": Work(_sjeng, "func:eval", "position", r"(?m)^(?!move ).*\n?", "typed"),
    "bzip2": Work(_bzip2, "func:BZ2_compressBlock", "block of 100 kB"),
}
