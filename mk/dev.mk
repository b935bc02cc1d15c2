# dev.mk: what developers run: the demo, formatting, claims, benchmarks, the cross build.

FORMATTED := $(sort $(shell find src include tests tools bench -name '*.[ch]'))

.PHONY: demo format check-format claims bench-cpu cross

#: demo        trains a small model on the built-in text, then samples from it
demo: all
	@$(if $(PROGRAM),,echo "demo: src/cli has no program to run" >&2; exit 2;) \
	 $(PROGRAM) train demo out=$(BUILD)/demo && $(PROGRAM) sample $(BUILD)/demo --tokens 200

#: format      clang-format on every file; check-format only says which differ
format:
	clang-format -i $(FORMATTED)
check-format:
	clang-format --dry-run -Werror $(FORMATTED)

#: claims      runs the command behind each claim in the documents (a comment "shown by: COMMAND")
claims: all
	@sh tools/claims README.md DESIGN.md SPEED.md $(wildcard docs/*.md)

#: bench-cpu   ours against a peer, interleaved: PRESETS, DTYPES, ROUNDS, STEPS, THREADS, PEERS=folder (bench/cpu/README.md)
bench-cpu: all
	@python3 bench/cpu/compare.py --anneal $(BUILD)/anneal

# The cross build needs a foreign root with the third-party libraries: tools/cross_sysroot makes one from the distribution's packages.
CROSS_TRIPLE ?= aarch64-linux-gnu
CROSS_ARCH   ?= arm64
CROSS_QEMU   ?= qemu-aarch64-static
CROSS_BUILD  := build/$(CROSS_ARCH)
CROSS_ROOT   := $(CROSS_BUILD)/sysroot
CROSS_MAKE    = PKG_CONFIG_LIBDIR='$(CURDIR)/$(CROSS_ROOT)/usr/lib/$(CROSS_TRIPLE)/pkgconfig:$(CURDIR)/$(CROSS_ROOT)/usr/share/pkgconfig' \
                PKG_CONFIG_SYSROOT_DIR='$(CURDIR)/$(CROSS_ROOT)' $(MAKE) --no-print-directory CC=$(CROSS_TRIPLE)-gcc \
                AR=$(CROSS_TRIPLE)-ar PKG_CONFIG='pkg-config --static' NO_SHARED=1 BUILD=$(CROSS_BUILD) \
                EXTRA_CFLAGS='-isystem $(CURDIR)/$(CROSS_ROOT)/usr/include' \
                EXTRA_LDFLAGS='-static -L$(CURDIR)/$(CROSS_ROOT)/usr/lib/$(CROSS_TRIPLE)'

$(CROSS_ROOT)/complete: tools/cross_sysroot
	sh tools/cross_sysroot $(CROSS_ARCH) $(CROSS_ROOT)
	touch $@

#: cross       an arm64 build (static) and the unit tests under qemu; needs gcc-aarch64-linux-gnu and qemu-user-static
cross: $(CROSS_ROOT)/complete
	@$(CROSS_MAKE) test T='$(or $(T),unit)' WRAP='$(CROSS_QEMU)'
