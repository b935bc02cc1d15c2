# dev.mk: what developers run: the demo, formatting, claims, benchmarks, the cross build.

# Kernel templates and dialects are GPU code in macros, which clang-format does not know.
FORMATTED := $(filter-out src/kernels/gpu/% src/kernels/dialect/%,$(sort $(shell find src include tests tools bench -name '*.[ch]')))

# Kernel ladders: bench/DIR/bench_x.c becomes build/bench/DIR/bench_x.
BENCH_BINS := $(patsubst bench/%.c,$(BUILD)/bench/%,$(sort $(wildcard bench/*/bench_*.c)))

.PHONY: demo format check-format claims bench bench-cpu bench-import cross

#: bench       the kernel benchmarks of bench/ (they are run by hand)
bench: $(BENCH_BINS)
$(BUILD)/bench/%: bench/%.c $(LIB_A)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(CFLAGS) $(LIB_CFLAGS) $(LDFLAGS) -o $@ $< $(LIB_A) $(LIBS)

#: demo        trains a small model on the built-in text, then samples from it
demo: all
	@$(if $(PROGRAM),,echo "demo: src/cli has no program to run" >&2; exit 2;) \
	 $(PROGRAM) train demo out=$(BUILD)/demo && $(PROGRAM) sample $(BUILD)/demo --prompt "The " --tokens 300 && \
	 printf '\n%s\n' "Half a minute teaches letters; ten teach words:" "    $(PROGRAM) train words out=words && $(PROGRAM) sample words --best"

#: format      clang-format on every file; check-format only says which differ
format:
	clang-format -i $(FORMATTED)
check-format:
	clang-format --dry-run -Werror $(FORMATTED)

#: claims      runs the command behind each promise (tools/claims.list, and "shown by: COMMAND" in the documents) and prints its figures
claims: all
	@AN_BUILD='$(BUILD)' sh tools/claims tools/claims.list README.md DESIGN.md CONTRIBUTING.md SPEED.md CHANGELOG.md $(wildcard docs/*.md)

#: bench-cpu   ours against a peer, interleaved: PRESETS, DTYPES, ROUNDS, STEPS, THREADS, PEERS=folder (bench/cpu/README.md)
bench-cpu: all
	@python3 bench/cpu/compare.py --anneal $(BUILD)/anneal

#: bench-import PyTorch's step beside ours, in processor time: NAMES="gpt resnet18", UPDATE=1 (with the optimizer), INDUCTOR=1, THREADS=1, PYTHON=
bench-import: all
	@PYTHONPATH=python ANNEAL_LIBRARY=$(BUILD)/libanneal.so.0 $(or $(PYTHON),python3) -W ignore bench/import/torch_step.py --threads $(or $(THREADS),1) \
	    $(if $(UPDATE),--update) $(if $(INDUCTOR),--inductor) $(NAMES)

# The cross build needs the third-party libraries of the other architecture: tools/cross_sysroot unpacks them from the distribution's packages.
# Programs are linked dynamically (Debian has no static cmocka) and run under qemu.
CROSS_TRIPLE ?= aarch64-linux-gnu
CROSS_ARCH   ?= arm64
CROSS_QEMU   ?= qemu-aarch64-static
CROSS_BUILD  := build/$(CROSS_ARCH)
CROSS_ROOT   := $(CROSS_BUILD)/sysroot
CROSS_LIB    := $(CURDIR)/$(CROSS_ROOT)/usr/lib/$(CROSS_TRIPLE)
CROSS_MAKE    = PKG_CONFIG_LIBDIR='$(CROSS_LIB)/pkgconfig:$(CURDIR)/$(CROSS_ROOT)/usr/share/pkgconfig' \
                PKG_CONFIG_SYSROOT_DIR='$(CURDIR)/$(CROSS_ROOT)' $(MAKE) --no-print-directory CC=$(CROSS_TRIPLE)-gcc \
                AR=$(CROSS_TRIPLE)-ar BUILD=$(CROSS_BUILD) EXTRA_CFLAGS='-isystem $(CURDIR)/$(CROSS_ROOT)/usr/include' \
                EXTRA_LDFLAGS='-L$(CROSS_LIB) -Wl,-rpath-link,$(CROSS_LIB)'

$(CROSS_ROOT)/complete: tools/cross_sysroot
	sh tools/cross_sysroot $(CROSS_ARCH) $(CROSS_ROOT)
	touch $@

#: cross       an arm64 build and the unit tests under qemu; needs gcc-aarch64-linux-gnu and qemu-user-static
cross: $(CROSS_ROOT)/complete
	@$(CROSS_MAKE) test T='$(or $(T),unit)' WRAP='$(CROSS_QEMU) -L /usr/$(CROSS_TRIPLE) -E LD_LIBRARY_PATH=$(CROSS_LIB):$(CURDIR)/$(CROSS_ROOT)/lib/$(CROSS_TRIPLE)'
