#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Install the Debian packages that a set of tasks needs, and only those that are missing.
#
#	install_deps.sh [--check|--optional] SET...
#
#	SET         build | test | compiler | compiler-19 | compiler-32 | servers | qemu | demo |
#	            bench | hmmsearch | programs | lint
#	--check     install nothing; name what is missing and fail
#	--optional  what cannot be installed is named, but is no failure (its tests are skipped)
#
# Another apt that is running, as on a machine that has just started, is waited for: CAIRN_APT_WAIT
# seconds, 600 by default. Silent when nothing is missing. Services that a package brings (redis,
# nginx) are not started.
set -euo pipefail
cd "$(dirname "$0")/.."

# Is there such a package to install, or installed?
can_have() {
	dpkg-query -W "$1" >/dev/null 2>&1 || apt-cache show "$1" 2>/dev/null | grep -q '^Version:'
}

packages_of() {
	case $1 in
	build)
		echo gcc libc6-dev cmake ninja-build pkg-config binutils libzydis-dev libdw-dev
		echo python3
		;;
	test) echo g++ libcmocka-dev git ;;
	compiler) # cairn-cc: 22 where the archive has it (security updates have), else 19
		llvm=19
		! can_have clang-22 || llvm=22
		echo clang-$llvm lld-$llvm llvm-$llvm-{dev,tools}
		echo g++ csmith libcsmith-dev zlib1g-dev
		echo dpkg-dev make tcl # for what tests build from its source: a libc, Lua, SQLite
		;;
	compiler-19) # cairn-cc-19, beside one of 22
		echo clang-19 lld-19 llvm-19-{dev,tools}
		;;
	compiler-32) # cairn-cc -m32
		echo gcc-multilib libc6-dev-i386 lib32gcc-12-dev lib32stdc++-12-dev
		;;
	servers)
		echo redis-server redis-tools nginx-light lighttpd apache2-utils memcached
		echo sqlite3 lua5.4 perl apache2-bin postgresql bind9 dnsperf
		echo libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0
		;;
	qemu) echo qemu-system-x86 ;; # the soft-dirty tracker, on another kernel
	demo) echo redis-server redis-tools python3 ;;
	bench) echo python3-venv hmmer ;;
	hmmsearch) echo dpkg-dev make autoconf libdivsufsort-dev ;; # to build it with symbols
	programs) # sources that `make bench BENCH=lmc` builds with cairn-cc
		packages_of hmmsearch
		echo libtool tcl libpcre2-dev libexpat1-dev
		echo automake libssl-dev libgdbm-dev pkg-config
		echo apache2-utils redis-tools postgresql dnsperf
		;;
	lint) echo clang-format-14 shellcheck git ;;
	*)
		echo "install_deps.sh: unknown set '$1'" >&2
		exit 2
		;;
	esac
}

# A package counts as there if dpkg says so, or if the tool that we want from it is there (a
# machine may have its own cmake or python3).
have() {
	local tool
	case $1 in
	gcc | g++ | cmake | python3 | git | perl | pkg-config) tool=$1 ;;
	redis-server | lighttpd | memcached | sqlite3 | lua5.4 | dnsperf) tool=$1 ;;
	apache2-bin) tool=apache2 ;;
	hmmer) tool=hmmsearch ;;
	bind9) tool=named ;;
	clang-format-14 | shellcheck) tool=$1 ;;
	ninja-build) tool=ninja ;;
	redis-tools) tool=redis-cli ;;
	nginx-light) tool=nginx ;;
	apache2-utils) tool=ab ;;
	qemu-system-x86) tool=qemu-system-x86_64 ;;
	binutils) tool=readelf ;;
	*) tool= ;;
	esac
	if [ -n "$tool" ] && PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null 2>&1; then
		return 0
	fi
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

mode=install
case ${1-} in
--check) mode=check && shift ;;
--optional) mode=optional && shift ;;
esac
[ $# -gt 0 ] || {
	sed -n '3,15s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

give_up() {
	echo "cairn: $1" >&2
	echo "cairn: install them with: apt-get install ${missing[*]}" >&2
	if [ "$mode" = optional ]; then
		echo "cairn: going on without; what needs them is skipped" >&2
		exit 0
	fi
	exit 1
}

missing=()
for set_name in "$@"; do
	wanted=$(packages_of "$set_name")
	for package in $wanted; do
		have "$package" || missing+=("$package")
	done
done

# Until $until. apt-get's own way to wait (DPkg::Lock::Timeout) is for one of its three locks alone.
apt_get() {
	local log status told=''
	log=$(mktemp)
	while :; do
		status=0
		"${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" \
			</dev/null 2>"$log" || status=$?
		if [ $status -eq 0 ] || ! grep -q 'Could not get lock' "$log"; then
			break
		elif [ $SECONDS -ge $until ]; then
			echo "cairn: another apt goes on and on: try again when it has ended" >&2
			break
		fi
		[ -n "$told" ] || echo "cairn: another apt is running; waiting for it to end" >&2
		told=1
		sleep 3
	done
	cat "$log" >&2
	rm -f "$log"
	return $status
}

install_missing() {
	as_root=()
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null 2>&1 ||
			give_up "neither root nor sudo to install what is missing: ${missing[*]}"
		# Without a terminal nobody can type a password.
		[ -t 0 ] || sudo -n true 2>/dev/null ||
			give_up "sudo wants a password to install what is missing: ${missing[*]}"
		as_root=(sudo)
	fi
	command -v apt-get >/dev/null 2>&1 ||
		give_up "this is no Debian (no apt-get); missing: ${missing[*]}"

	# policy-rc.d is how Debian asks whether a new service may start. Ours says no, and goes.
	local policy=/usr/sbin/policy-rc.d made_policy=
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
		"${as_root[@]}" chmod 755 $policy
		made_policy=1
		trap '"${as_root[@]}" rm -f /usr/sbin/policy-rc.d' EXIT
	fi
	local until=$((SECONDS + ${CAIRN_APT_WAIT:-600}))
	local status=0 install=(install --no-install-recommends "${missing[@]}")
	echo "cairn: installing ${missing[*]}"
	# The package lists of a fresh machine are missing or old: fetch them and try again.
	apt_get "${install[@]}" || { apt_get update && apt_get "${install[@]}"; } || status=$?
	if [ -n "$made_policy" ]; then
		"${as_root[@]}" rm -f $policy
		trap - EXIT
	fi
	[ $status -eq 0 ] || give_up "apt-get could not install: ${missing[*]}"
}

if [ ${#missing[@]} -gt 0 ]; then
	[ "$mode" != check ] || give_up "missing: ${missing[*]} (\`make deps\` installs them)"
	install_missing
fi

# What the report of `make bench` draws with, and its bar, in a virtual environment of this tree.
case " $* " in
*" bench "*)
	if ! .venv/bin/python -c 'import matplotlib, rich' >/dev/null 2>&1; then
		[ "$mode" != check ] || exit 1
		python3 -m venv .venv
		.venv/bin/pip install -q -r bench/requirements.txt
	fi
	;;
esac
