// SPDX-License-Identifier: MIT
// What the pass is asked to do. cairn-cc hands it over in the environment (CAIRN_PASS), because a
// plugin that the linker loads has no command line of its own.
#ifndef CAIRN_COMPILER_OPTIONS_H
#define CAIRN_COMPILER_OPTIONS_H

#include "llvm/ADT/StringRef.h"
#include <string>
#include <vector>

namespace cairn {

enum class Tracker { Shadow, UndoLog };

// A place of the program at which it takes a checkpoint.
struct Site {
	std::string function;
	bool at_return = false;
	bool is_long = false; // the intervals that it begins are
	unsigned every = 1; // so many-th time
};

// A variable that cairn-cc has set, or what is in the file that it names (compiler/long_words.py).
std::string handed_over(const char *variable);

struct Options {
	Tracker tracker = Tracker::Shadow;
	unsigned shift = 7;       // log2 of the region, of the shadow; 0: a tag for each byte
	bool epoch = false;       // a tag is the number of its interval, else 1 (enum crn_rt_tags)
	bool save = true;         // false: tags are read, nothing is ever saved (LMC, Figure 10)
	bool link = false;        // the final link of a program: all of its code is in the module
	bool lto = false;         // units get their hooks when all are linked
	bool profile = false;     // count loops, and put no hooks in (loop_counters.h)
	bool sites_long = false;  // intervals of the profile's sites are long
	bool may_lack_sites = false; // of a profile: not one of its loops has to be here
	bool warn_lack = true;    // then say that there is none; of -fcairn-site, too
	bool guard = false;       // stray stores stop (src/rt/stray_guard.c)
	bool threads = false;     // hooks of several threads at once (LMC, IV-D)
	bool stack = true;        // leave out stores to the stack
	bool fresh = false;       // leave out stores to fresh memory; its allocator has no hooks
	bool loops = true;        // one range for the stores of a loop
	bool segments = true;     // short ranges are checked in place
	bool aggregate = true;    // one check for stores off one base
	bool aligned = true;      // stores lie as their types ask for
	bool redundant = true;    // leave out what a dominating store has saved
	bool calls = true;        // tell apart which calls can reach a checkpoint
	bool clone = false;       // each function with hooks and without, and a switch
	bool hybrid = false;      // and the switch may change within an interval
	bool wrap = true;         // libc functions that write memory
	bool heap = true;         // malloc and its like, of them
	bool own = true;          // functions with libc's names may be the program's own
	bool native_quiet = false; // what is linked without bitcode takes no checkpoints
	bool report = false;      // say what was done and what was not
	bool warn_uncovered = false; // one line if external functions may write unseen
	// Files: what is known of external functions; of libc's.
	std::vector<std::string> abi_lists, libc_lists;
	std::vector<Site> sites;
	bool site_one = false;    // sites promise that other threads do not write
	unsigned lose = 0;        // for tests of the oracle: every so many-th store has no hook
	unsigned miss = 0;        // the same: the store of that number alone

	unsigned long region() const { return 1ul << shift; }
	// Another thread may be in a version without hooks when a session is opened.
	bool clones() const { return clone && link && !threads; }
	bool bytes() const { return tracker == Tracker::Shadow && !shift; }

	// "key=value,..."; an unknown key or value ends the compiler with a line that names it.
	static Options parse(llvm::StringRef text);
	static Options given() { return parse(handed_over("CAIRN_PASS")); }
};

} // namespace cairn
#endif
