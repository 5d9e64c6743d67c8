# make build          target/release/yasmin, yasmind and libyasmin.so
# make demo           real programs, over plain TCP and through rings; a table and a report
# make perf           the demo's usual rows, beside an earlier version, in turn; AGAINST=COMMIT
# make lab-peers      which way between programs is how fast: TCP, rings, Unix sockets, sockmap, MPI, iceoryx2
# make lab            which way to parallelise pays: kernels in OpenMP, MPI and OpenSHMEM, each path proven
# make test           lints, unit, model-checked and end-to-end tests, licences
# make jobs           whole jobs by many real programs; writes docs/programs.md
# make conformance    other people's tests, on plain TCP and through rings; writes docs/conformance.md
# make differential  random socket calls, plain and accelerated; SECONDS=600
# make mutants        one rule taken out at a time: do the random programs find it? MUTANTS="--only edges"; by hand
# make fuzz, asan     longer hunts; need a nightly toolchain
# make soak           waits in random interleavings; SOAK=1000 for longer
# make cost           what the library costs where it does nothing, and waits on many sockets
# make runtimes       echo servers of many runtimes, over plain TCP and through rings
# make numa-test      placement on an emulated machine with two NUMA nodes; by hand
# make vm-test        Xen, dom0 and two guests in one emulated machine, and checks inside; by hand
# make vm-pvh-test    the same with PVH guests: segments that dom0 gives them; by hand
# make vm-pvh-rings   the same, a processor for each: TCP by rings between them; by hand
# make vm-pvh-bench  programs between two of these, by TCP, vsock, rings, and a segment: VM="--only ints"; by hand
# make vm-up, vm-down the same machine to work in: tests/vm/lab.py exec a|b|dom0 COMMAND
# make vm-bench       what paths between the guests give, in virtual time
# make vm-lab         MPI and OpenMP in guests, by Xen's scheduler and virtual CPUs: VM="--machines credit2"; by hand
# make kvm-test       QEMU guests that share memory, and checks inside; with YASMIN_VM_LIBVIRT=1 libvirt runs them; by hand
# make kvm-migrations  a guest moves again and again under checked streams: VM="--moves 100"; by hand
# make kvm-bench      programs in two such guests: virtio-net against yasmin run; VM="--rounds 3"; by hand
# make kvm-lab        MPI and OpenMP in one and two such guests, by virtio-net and by rings; by hand
# make kvm-up, kvm-down the same guests to work in: tests/vm/kvm.py exec a|b COMMAND
# make deb            Debian packages, in target/deb
# make deb-test       installs, upgrades and removes them in a fresh Debian; by hand
# make newer          the semantics tests by the libc and compilers of another Debian: DEBIAN=trixie FILTERS=streams::; by hand
# make install        to $(DESTDIR)$(PREFIX); make uninstall takes exactly that away again

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
TARGET = $(or $(CARGO_TARGET_DIR),target)
RELEASE = $(TARGET)/release
# What drives what RELEASE holds.
E2E = test -p yasmin-tests --profile e2e

# Options for the demo, as in: make demo DEMO="--quick --out /tmp/report"
DEMO ?=
# Options for the lab, as in: make lab LAB="--only heat,is-s --out /tmp/lab", or LAB= for all sizes
LAB ?= --quick
# Options for the conformance suites, as in: make conformance CONFORMANCE="--only CPython"
CONFORMANCE ?= --out docs/conformance.md
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60
# Seconds for random programs of socket calls.
SECONDS ?= 60
# Threads of the end-to-end tests; they share the machine's cores with what they start.
E2E_THREADS ?= 1

# command:package and library.pc:package, see .ci/install-packages
BUILD_NEEDS = cc:gcc pkg-config:pkg-config clang:clang llvm-strip:llvm \
	libbpf.pc:libbpf-dev libelf.pc:libelf-dev zlib.pc:zlib1g-dev \
	hwloc.pc:libhwloc-dev libudev.pc:libudev-dev
DEMO_NEEDS = iperf3:iperf3 sockperf:sockperf redis-server:redis-server \
	redis-benchmark:redis-tools nginx:nginx-light wrk:wrk ip:iproute2
LAB_NEEDS = make:make gcc:gcc ip:iproute2 mpirun.openmpi:openmpi-bin \
	mpicc.openmpi:libopenmpi-dev mpirun.mpich:mpich mpicc.mpich:libmpich-dev
TEST_NEEDS = $(DEMO_NEEDS) $(LAB_NEEDS) musl-gcc:musl-tools python3:python3 curl:curl \
	pg_ctlcluster:postgresql haproxy:haproxy memcached:memcached memcaslap:libmemcached-tools \
	mariadbd:mariadb-server-core mariadb-slap:mariadb-client \
	dpdk-testpmd:dpdk-dev ping:iputils-ping sshd:openssh-server rsync:rsync git:git fcgiwrap:fcgiwrap openssl:openssl \
	systemd-socket-activate:systemd iptables:iptables c++:g++ valgrind:valgrind
# Large ones, for make jobs only.
JOBS_NEEDS = javac:openjdk-17-jdk-headless rabbitmq-server:rabbitmq-server \
	/usr/lib/python3/dist-packages/pika/__init__.py:python3-pika apache2:apache2 varnishd:varnish \
	stunnel4:stunnel4 socat:socat lighttpd:lighttpd
# npm too, for Node.js's own tests and Bun; without it they are left out, with a line.
CONFORMANCE_NEEDS = python3:python3 cc:gcc c++:g++ make:make cmake:cmake ip:iproute2 unshare:util-linux xz:xz-utils \
	ruby:ruby openssl:openssl php8.2:php8.2-cli perl:perl openssl.pc:libssl-dev ct_run:erlang-common-test
DEB_NEEDS = dh:debhelper dh_dkms:dh-dkms chrpath:chrpath systemd.pc:systemd
DEB_TEST_NEEDS = debootstrap:debootstrap lintian:lintian python3:python3 ip:iproute2 unshare:util-linux
VM_NEEDS = qemu-system-x86_64:qemu-system-x86 cpio:cpio cc:gcc make:make python3:python3 xz:xz-utils ip:iproute2

# The library has no std: it is built and linted as what it is, never as a test.
HOSTED = --workspace --exclude yasmin-preload
UNITS = $(HOSTED) --exclude yasmin-tests

.PHONY: soak cost runtimes build surface demo perf lab lab-peers test differential mutants jobs conformance conformance-short needs-conformance fuzz asan install uninstall clean
.PHONY: needs-build needs-demo needs-lab needs-test needs-jobs lint unit loom e2e licences fuzz-smoke sanitizers tsan
.PHONY: deb deb-test newer
.PHONY: numa-test vm-up vm-down vm-test vm-pvh-test vm-pvh-rings vm-pvh-bench vm-bench vm-lab needs-vm kvm-up kvm-down kvm-test kvm-migrations kvm-bench kvm-lab

# Two runs: built together, the library's dependencies would get the features that the broker
# asks of them, and with those std.
build: needs-build
	$(CARGO) build --release --workspace --exclude yasmin-preload --exclude yasmin-tests
	$(CARGO) build --release -p yasmin-preload
	@$(MAKE) --no-print-directory $(SHMEM) $(SEGMENT)

# OpenSHMEM, in C, on the C library of segments.
SHMEM = $(RELEASE)/libyasmin-shmem.so.0
SHMEM_HEADERS = $(wildcard shmem/include/*.h)
SHMEM_PARTS = $(patsubst shmem/src/%.c,$(RELEASE)/shmem/%.o,$(wildcard shmem/src/*.c))
SHMEM_FLAGS = -std=gnu11 -O2 -g1 -Wall -Wextra -fPIC

$(RELEASE)/shmem/%.o: shmem/src/%.c shmem/src/internal.h $(SHMEM_HEADERS) crates/segment/include/yasmin.h
	@mkdir -p $(@D)
	$(CC) $(SHMEM_FLAGS) -Ishmem/include -Icrates/segment/include -c -o $@ $<

# By the file itself: cargo's name for the library is not the one it is installed by.
$(SHMEM): $(SHMEM_PARTS)
	$(CC) -shared -Wl,-soname,$(@F) -Wl,-rpath,'$$ORIGIN' -Wl,--as-needed -o $@ $^ \
		$(RELEASE)/libyasmin_segment_c.so

# What it asks for, by the name that is installed.
SEGMENT = $(RELEASE)/libyasmin-segment.so.0

$(SEGMENT):
	ln -sf libyasmin_segment_c.so $@

demo: needs-demo build
	$(RELEASE)/yasmin demo $(DEMO)

# The last release, or any commit or tag: it is built once, and kept below target/versions.
AGAINST ?= $(shell git describe --tags --abbrev=0 2>/dev/null)
# Options as for the demo.
PERF ?= --pairs 5

perf: needs-demo build
	before=$$(.ci/keep-version "$(AGAINST)" $(abspath $(TARGET)/versions)) && \
		$(RELEASE)/yasmin demo --against $$before --out $(TARGET)/perf $(PERF)

# Some minutes; needs root, for network namespaces.
lab: needs-lab build
	$(RELEASE)/yasmin lab $(LAB)

# The ways between programs side by side. Options: PEERS="--rounds 9"
lab-peers: needs-lab build
	CARGO_TARGET_DIR=$(abspath $(TARGET))/iceoryx2 $(CARGO) build --release --locked --manifest-path lab/iceoryx2/Cargo.toml
	install -m 755 $(TARGET)/iceoryx2/release/iceoryx2-pingpong $(RELEASE)/
	$(RELEASE)/yasmin lab peers $(PEERS)

test: needs-test lint unit loom e2e conformance-short sanitizers fuzz-smoke licences
	@echo "All tests passed."

needs-build:
	@.ci/install-packages $(BUILD_NEEDS)
	@.ci/install-rust

needs-demo:
	@.ci/install-packages $(DEMO_NEEDS)

needs-lab:
	@.ci/install-packages $(LAB_NEEDS)

needs-test: needs-build
	@.ci/install-packages $(TEST_NEEDS)
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny

needs-jobs: needs-test
	@.ci/install-packages $(JOBS_NEEDS)

needs-conformance: needs-build
	@.ci/install-packages $(CONFORMANCE_NEEDS)

lint: needs-build
	@.ci/install-packages man:man-db python3:python3
	.ci/storeys crates/preload/src
	$(CARGO) fmt --check
	$(CARGO) clippy $(HOSTED) --all-targets -- -D warnings
	$(CARGO) clippy -p yasmin-preload -- -D warnings
	@! for page in $(MANUALS); do man --warnings -l -Tutf8 $$page; done 2>&1 >/dev/null | grep .

unit: needs-build
	$(CARGO) test $(UNITS)

# Model checking on the real code: every order of every access.
loom: needs-build
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET)/loom \
		$(CARGO) test -p yasmin-ring -p yasmin-segment --release --test 'loom*'

# Random programs of socket calls, on plain TCP and under the library, for so many seconds.
differential: build
	YASMIN_DIFFERENTIAL_S=$(SECONDS) $(CARGO) $(E2E) --test differential -- --nocapture

# Whether these programs find what they are for.
mutants: build
	python3 tests/mutants/run.py --bin $(RELEASE) --work $(TARGET)/mutants $(MUTANTS) --program \
		"$$($(CARGO) $(E2E) --no-run --test differential 2>&1 | sed -n 's/.*(\(.*\))$$/\1/p')"

# Nothing that libc or the kernel has goes past the library without a reason.
surface: build
	python3 tests/surface/check.py $(RELEASE)/libyasmin.so

e2e: build surface
	$(CARGO) $(E2E) --lib --test '*' -- --test-threads=$(E2E_THREADS)

# All programs, the large ones too, and longer runs than the end-to-end tests'.
jobs: needs-jobs build
	rm -rf $(TARGET)/jobs
	YASMIN_JOBS=all YASMIN_TEST_DEADLINE_S=300 YASMIN_JOBS_OUT=$(abspath $(TARGET)/jobs) \
		$(CARGO) $(E2E) --test jobs -- --test-threads=1; \
	result=$$?; $(CARGO) run -q -p yasmin-tests --profile e2e --bin jobs-table -- \
		$(abspath $(TARGET)/jobs) >docs/programs.md; exit $$result

# As often as in the tests, times this.
SOAK ?= 100

soak: build
	YASMIN_SOAK=$(SOAK) $(CARGO) $(E2E) --test soak -- --include-ignored --nocapture

# Rounds, each with and without the library; wants a silent machine.
COST ?= 5

cost: build
	$(CARGO) build --release -p yasmin-tests --bin cost
	YASMIN_BIN_DIR=$(RELEASE) $(RELEASE)/cost $(COST)

# Options and names, as in: make runtimes RUNTIMES="--rounds 5 --json out.json tokio-multi redis"
RUNTIMES ?=

# What is not installed is left out: see tests/src/runtimes. YASMIN_PYTHON: one with grpcio.
runtimes: build
	$(CARGO) build --release -p yasmin-tests --bin runtimes --bin tokio-echo
	YASMIN_BIN_DIR=$(RELEASE) $(RELEASE)/runtimes $(RUNTIMES)

licences:
	$(CARGO) deny --log-level error check licenses bans sources

# Packages and sources are unpacked below target/.
SUITES = python3 tests/conformance/run.py --bin $(RELEASE) --cache $(TARGET)/conformance

conformance: needs-conformance build
	$(SUITES) --jobs $(shell nproc) --json $(TARGET)/conformance.json $(CONFORMANCE)

# A part that takes some three minutes.
conformance-short: build
	$(SUITES) --short --modes plain,forced,chaos

# With nightly only; without it one line says so.
fuzz-smoke:
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=10 FUZZ_OPTIONAL=1

fuzz:
	@.ci/fuzz $(FUZZ_SECONDS) $(FUZZ_OPTIONAL)

NATIVE = $(shell uname -m)-unknown-linux-gnu

# With nightly only; without it one line says so.
sanitizers:
	@if $(CARGO) +nightly --version >/dev/null 2>&1; then \
		$(MAKE) --no-print-directory asan tsan; \
	else \
		echo "sanitizers: skipped, there is no nightly toolchain"; \
	fi

asan:
	RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=$(TARGET)/asan \
		$(CARGO) +nightly test -p yasmin-ring --target $(NATIVE) \
		--test stress --test properties --test vectors

# One mapping for both ends: ThreadSanitizer goes by address.
tsan:
	YASMIN_STRESS_MAPPINGS=1 CARGO_TARGET_DIR=$(TARGET)/tsan \
		RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
		$(CARGO) +nightly test -p yasmin-ring --target $(NATIVE) --test stress

# Options as in: make vm-test VM="--keep netfront"
VM ?=

needs-vm:
	@.ci/install-packages $(VM_NEEDS)

vm-up: needs-vm
	@tests/vm/lab.py up $(VM)

vm-down:
	@tests/vm/lab.py down

vm-test: needs-vm
	@tests/vm/test.py $(VM)

vm-pvh-test: needs-vm
	@tests/vm/xen_test.py $(VM)

vm-pvh-rings: needs-vm
	@tests/vm/xen_rings.py $(VM)

vm-pvh-bench: needs-vm
	@tests/vm/xen_bench.py $(VM)

vm-bench: needs-vm
	@tests/vm/bench.py $(VM)

vm-lab: needs-vm
	@tests/vm/bench_lab.py $(VM)

kvm-up: needs-vm
	@tests/vm/kvm.py up $(VM)

kvm-down:
	@tests/vm/kvm.py down

kvm-test: needs-vm
	@tests/vm/kvm_test.py $(VM)

kvm-migrations: needs-vm
	@tests/vm/kvm_migrations.py $(VM)

kvm-bench: needs-vm
	@tests/vm/kvm_bench.py $(VM)

kvm-lab: needs-vm
	@tests/vm/kvm_lab.py $(VM)

# Discovery, pinning, cpusets and unplugged CPUs on an emulated machine with two nodes; by hand.
numa-test: build
	@.ci/install-packages qemu-system-x86_64:qemu-system-x86 cpio:cpio python3:python3
	tests/numa/test.py $(RELEASE)/yasmin $(NUMA)

MANUALS = man/yasmin.1 man/yasmin-place.1 man/yasmind.8 man/libyasmin.7 man/yasmin_segment.3 \
	man/yasmin_sync.3 man/oshrun.1 man/oshcc.1 man/yasmin-shmem.7
UNIT = crates/yasmind/yasmind.service
HOST_UNIT = crates/yasmind/yasmin-host.service
SOCKET_UNIT = crates/yasmind/yasmind.socket
PLACE_UNIT = crates/watch/yasmin-place.service
USERS = crates/yasmind/yasmind.sysusers
BIN = $(DESTDIR)$(PREFIX)/bin
LIB = $(DESTDIR)$(PREFIX)/lib/yasmin
LIBEXEC = $(DESTDIR)$(PREFIX)/libexec/yasmin
INCLUDE = $(DESTDIR)$(PREFIX)/include
LINKED = $(DESTDIR)$(PREFIX)/lib
PKGCONFIG = $(LINKED)/pkgconfig
PYTHON_MODULE = $(LIB)/python
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
MAN = $(DESTDIR)$(PREFIX)/share/man
# Where shells look for what completes commands.
BASH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
SYSTEMD = $(DESTDIR)$(PREFIX)/lib/systemd/system
SYSUSERS = $(DESTDIR)$(PREFIX)/lib/sysusers.d

# No build here: root installs what a user has built.
install:
	@test -x $(RELEASE)/yasmin || { echo "nothing to install yet; run make build" >&2; exit 1; }
	install -d $(BIN) $(LIB) $(LIBEXEC) $(SYSTEMD) $(SYSUSERS)
	install -d $(MAN)/man1 $(MAN)/man3 $(MAN)/man7 $(MAN)/man8 $(INCLUDE) $(PKGCONFIG) $(PYTHON_MODULE)
	install -m 755 $(RELEASE)/yasmin $(BIN)/yasmin
	install -m 755 $(RELEASE)/libyasmin.so $(LIB)/libyasmin.so
	install -m 755 $(RELEASE)/yasmin-inject $(LIB)/yasmin-inject
	install -m 755 $(RELEASE)/yasmind $(LIBEXEC)/yasmind
	install -m 755 $(RELEASE)/libyasmin_segment_c.so $(LINKED)/libyasmin-segment.so.0
	ln -sf libyasmin-segment.so.0 $(LINKED)/libyasmin-segment.so
	install -m 644 crates/segment/include/yasmin.h $(INCLUDE)/yasmin.h
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' crates/segment/yasmin-segment.pc.in >$(PKGCONFIG)/yasmin-segment.pc
	install -m 644 crates/segment/python/*.py $(PYTHON_MODULE)
	install -m 755 $(SHMEM) $(LINKED)/libyasmin-shmem.so.0
	ln -sf libyasmin-shmem.so.0 $(LINKED)/libyasmin-shmem.so
	install -m 644 $(SHMEM_HEADERS) $(INCLUDE)
	ln -sf yasmin $(BIN)/oshrun
	sed 's|@PREFIX@|$(PREFIX)|; s|@COMPILER@|cc|; s|@VARIABLE@|CC|' shmem/oshcc.in >$(BIN)/oshcc
	sed 's|@PREFIX@|$(PREFIX)|; s|@COMPILER@|c++|; s|@VARIABLE@|CXX|' shmem/oshcc.in >$(BIN)/oshc++
	chmod 755 $(BIN)/oshcc $(BIN)/oshc++
	sed 's|/usr/bin/yasmind|$(PREFIX)/libexec/yasmin/yasmind|' $(UNIT) >$(SYSTEMD)/yasmind.service
	sed 's|/usr/bin/yasmind|$(PREFIX)/libexec/yasmin/yasmind|' $(HOST_UNIT) >$(SYSTEMD)/yasmin-host.service
	install -m 644 $(SOCKET_UNIT) $(SYSTEMD)/yasmind.socket
	sed 's|/usr/bin/yasmin|$(PREFIX)/bin/yasmin|' $(PLACE_UNIT) >$(SYSTEMD)/yasmin-place.service
	install -m 644 $(USERS) $(SYSUSERS)/yasmind.conf
	for page in $(MANUALS); do install -m 644 $$page $(MAN)/man$${page##*.}/; done
	install -d $(BASH_COMPLETIONS) $(ZSH_COMPLETIONS) $(FISH_COMPLETIONS)
	$(RELEASE)/yasmin completions bash >$(BASH_COMPLETIONS)/yasmin
	$(RELEASE)/yasmin completions zsh >$(ZSH_COMPLETIONS)/_yasmin
	$(RELEASE)/yasmin completions fish >$(FISH_COMPLETIONS)/yasmin.fish

uninstall:
	rm -f $(BIN)/yasmin $(LIB)/libyasmin.so $(LIB)/yasmin-inject $(LIBEXEC)/yasmind
	rm -f $(LINKED)/libyasmin-segment.so.0 $(LINKED)/libyasmin-segment.so $(INCLUDE)/yasmin.h
	rm -f $(PKGCONFIG)/yasmin-segment.pc
	rm -f $(PYTHON_MODULE)/yasmin_segment.py $(PYTHON_MODULE)/yasmin_sync.py
	rm -f $(LINKED)/libyasmin-shmem.so.0 $(LINKED)/libyasmin-shmem.so $(BIN)/oshrun $(BIN)/oshcc $(BIN)/oshc++
	rm -f $(patsubst shmem/include/%,$(INCLUDE)/%,$(SHMEM_HEADERS))
	rm -f $(SYSTEMD)/yasmind.service $(SYSTEMD)/yasmind.socket $(SYSTEMD)/yasmin-host.service
	rm -f $(SYSTEMD)/yasmin-place.service $(SYSUSERS)/yasmind.conf
	for page in $(MANUALS); do rm -f $(MAN)/man$${page##*.}/$${page##*/}; done
	rm -f $(BASH_COMPLETIONS)/yasmin $(ZSH_COMPLETIONS)/_yasmin $(FISH_COMPLETIONS)/yasmin.fish
	rm -rf $(PYTHON_MODULE)/__pycache__
	-rmdir --ignore-fail-on-non-empty $(PYTHON_MODULE)
	-rmdir --ignore-fail-on-non-empty $(LIB) $(LIBEXEC)

# debhelper works in debian/, and leaves nothing there.
DEBS = $(abspath $(TARGET)/deb)

deb: build
	@.ci/install-packages $(DEB_NEEDS)
	rm -f $(DEBS)/*.deb
	mkdir -p $(DEBS)
	debian/rules binary DEBS=$(DEBS)
	debian/rules clean
	@ls $(DEBS)/*.deb

# What lintian calls an error is one; then a Debian of its own, with systemd and a kernel's headers.
deb-test: deb
	@.ci/install-packages $(DEB_TEST_NEEDS)
	lintian --allow-root --fail-on error $(DEBS)/*.deb
	tests/deb/test.py $(DEBS)

DEBIAN ?= trixie
# Options and parts of tests' names, as: FILTERS="--test-threads=2 streams:: alone::"
FILTERS ?= --test-threads=1

# Needs root.
newer: needs-test build
	@.ci/install-packages debootstrap:debootstrap
	tests/newer/run.sh $(DEBIAN) $(abspath $(TARGET)/newer) "$$(realpath "$$($(CARGO) $(E2E) --no-run \
		--test semantics 2>&1 | sed -n 's/.*(\(.*\))$$/\1/p')")" $(abspath $(RELEASE)) $(FILTERS)

clean:
	$(CARGO) clean
	rm -rf out
