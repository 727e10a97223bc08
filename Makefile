# SPDX-License-Identifier: GPL-2.0
#
# For people. What the kernel's build needs is in Kbuild.
#
#   make                build zbd.ko for the running kernel, and zbdctl
#   make KDIR=DIR       build it for the kernel whose build directory is DIR
#   make module|zbdctl  build only one of them
#   make install        install both (INSTALL_MOD_PATH for another root, PREFIX
#                       for another place than /usr/local)
#   make clean
#
# Everything else runs in the lab, which brings its own kernel and tools:
#
#   make demo | test | check | bench

RELEASE := $(shell uname -r)

PREFIX ?= /usr/local

# Debian's headers lack what Rust modules need; tools/prepare-kernel adds it and
# leaves the command that builds with it. Under sudo, it was the user who ran it.
home := $(if $(SUDO_USER),$(shell getent passwd $(SUDO_USER) | cut -d: -f6),$(HOME))
prepared := $(or $(XDG_CACHE_HOME),$(home)/.cache)/zbd-kernel/$(RELEASE)

ifdef KDIR
kbuild := $(MAKE) -C $(KDIR)
rmeta := $(KDIR)/rust/libkernel.rmeta
else ifneq ($(wildcard $(prepared)/zbd-kbuild),)
kbuild := $(patsubst make,$(MAKE),$(shell cat $(prepared)/zbd-kbuild))
rmeta := $(prepared)/rust/libkernel.rmeta
else
kbuild := $(MAKE) -C /lib/modules/$(RELEASE)/build
rmeta := /lib/modules/$(RELEASE)/build/rust/libkernel.rmeta
endif

.PHONY: all
all: module zbdctl

.PHONY: module
module: $(rmeta)
	+$(kbuild) M=$(CURDIR) modules

$(rmeta):
	@echo "make: no $@: this kernel is not ready for Rust modules." >&2
	@echo "make: run tools/prepare-kernel, or name a prepared build directory with KDIR=" >&2
	@false

zbdctl := tools/target/release/zbdctl

.PHONY: zbdctl
zbdctl: $(zbdctl)

# With prerequisites, so that `sudo make install` behind `make` runs no cargo.
$(zbdctl): tools/Cargo.lock $(shell find tools/zbdctl tools/engine rust/engine \
		-name '*.rs' -o -name Cargo.toml)
	cd tools && cargo build --release --locked --target-dir target -p zbdctl
	@touch $@

.PHONY: install
install: module $(zbdctl)
	+$(kbuild) M=$(CURDIR) modules_install
	install -D -m 755 $(zbdctl) $(INSTALL_MOD_PATH)$(PREFIX)/sbin/zbdctl

.PHONY: clean
clean:
	+$(kbuild) M=$(CURDIR) clean
	rm -rf tools/target

.PHONY: demo test check
demo test check:
	tools/lab $@

# ROUNDS=5 SECONDS=4 measure longer.
.PHONY: bench
bench:
	tools/lab bench $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS))
