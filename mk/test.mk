# test.mk: test programs and checks. tests/DIR/test_x.c becomes build/tests/DIR/test_x, linked with tests/lib and the library;
# tests/DIR/test_x.sh is run as it is. All of them print TAP, which tools/run_tests counts.

TEST_SRCS  := $(sort $(wildcard tests/*/test_*.c))
TEST_SHELL := $(sort $(wildcard tests/*/test_*.sh))
# Until the public header has the API, there is nothing that an installed library could be used for.
TEST_SHELL := $(if $(shell grep -l an_open include/anneal.h),$(TEST_SHELL),$(filter-out tests/install/%,$(TEST_SHELL)))
TEST_LIB   := $(sort $(wildcard tests/lib/*.c))
TEST_BINS  := $(TEST_SRCS:tests/%.c=$(BUILD)/tests/%)
TEST_LIB_OBJS := $(TEST_LIB:tests/%.c=$(BUILD)/tests/%.o)
# The longest are started first: no processor waits for the last of them.
LONG_TESTS := metal/test_selftest metal/test_host_mutants metal/test_host metal/test_tasks_exact metal/test_metal shim/test_ops_shim ops/test_ops \
              cli/test_ranks_tasks random/test_random unit/test_comm metal/test_gemm_bodies
long_first = $(foreach t,$(LONG_TESTS),$(filter %/$(t) %/$(t).sh,$(1))) $(filter-out $(foreach t,$(LONG_TESTS),%/$(t) %/$(t).sh),$(1))
CHECKS     := tools/layers tools/names tools/lines tools/words tools/device_names tools/tables tools/argument_order

CMOCKA_CFLAGS = $(shell $(PKG_CONFIG) --cflags cmocka)
CMOCKA_LIBS   = $(shell $(PKG_CONFIG) --libs cmocka)

$(BUILD)/tests/%.o: tests/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) -Itests $(CFLAGS) $(LIB_CFLAGS) $(CMOCKA_CFLAGS) -MMD -MP -c -o $@ $<

# tests/lib/alloc.c refuses allocations of our objects.
ALLOC_WRAP := $(if $(DARWIN),,$(foreach f,malloc calloc realloc aligned_alloc posix_memalign,-Wl,--wrap=$(f)))

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_LIB_OBJS) $(CLI_A) $(LIB_A)
	$(call say,LD,$@)$(CC) $(LDFLAGS) $(ALLOC_WRAP) -o $@ $< $(TEST_LIB_OBJS) $(CLI_A) $(LIB_A) $(LIBS) $(CMOCKA_LIBS)

.SECONDARY: $(TEST_BINS:=.o) $(TEST_LIB_OBJS)
-include $(TEST_BINS:=.d) $(TEST_LIB_OBJS:.o=.d)

# T=unit/test_map or T=unit narrows the list; checks and the install test run only in a run of an ordinary build.
only = $(if $(T),$(foreach t,$(1),$(if $(or $(findstring /$(T)/,$(t)),$(filter %/$(T) %/$(T).sh,$(t))),$(t))),$(1))
RUN_BINS  := $(call only,$(TEST_BINS))
RUN_SHELL := $(call only,$(if $(SAN)$(WRAP),$(filter-out tests/install/%,$(TEST_SHELL)),$(TEST_SHELL)))
RUN_CHECKS := $(if $(T)$(SAN)$(WRAP),,$(CHECKS))

.PHONY: build-tests test soak asan ubsan tsan valgrind
build-tests: all $(RUN_BINS) $(if $(T),,bench)

# A test that does not build is a failed test, and the others still run: hence -k and the runner's own list.
#: test        every check and test, a closing line of counts (T=unit/test_map: one; T=unit: a folder)
test:
	@failed=; $(MAKE) -k --no-print-directory build-tests || failed=1; \
	 BUILD_FAILED=$$failed AN_BUILD='$(BUILD)' WRAP='$(WRAP)' sh tools/run_tests $(call long_first,$(RUN_CHECKS) $(RUN_BINS) $(RUN_SHELL))

#: goldens     rewrites the texts of tests/golden; counts: only the table of launches, flops and bytes. Read the difference before committing it
.PHONY: goldens counts
goldens: $(BUILD)/tests/golden/test_texts counts
	UPDATE=1 $(BUILD)/tests/golden/test_texts
counts: $(BUILD)/tests/golden/test_counts
	UPDATE=1 $(BUILD)/tests/golden/test_counts

#: on-gpu      what tests/cuda/on_gpu.sh needs, stripped, in BUILD/on_gpu: for a machine with a GPU and without a compiler
.PHONY: on-gpu
ON_GPU := $(addprefix tests/,cuda/test_gpu cuda/test_memory cuda/test_bind cuda/test_cudnn ops/test_ops)
on-gpu: all $(ON_GPU:%=$(BUILD)/%)
	@mkdir -p $(BUILD)/on_gpu/tests/cuda $(BUILD)/on_gpu/tools $(addprefix $(BUILD)/on_gpu/build/,tests/cuda tests/ops proxy)
	@cp tests/cuda/on_gpu.sh tests/cuda/ranks_on_gpu.sh tests/cuda/bind_on_gpu.py $(BUILD)/on_gpu/tests/cuda; cp -R python $(BUILD)/on_gpu; \
	    for f in $(BUILD)/libanneal.so.*; do cp $$f $(BUILD)/on_gpu/build && strip --strip-unneeded $(BUILD)/on_gpu/build/$${f##*/}; done; cp tools/first_losses $(BUILD)/on_gpu/tools
	@for f in anneal $(ON_GPU); do cp $(BUILD)/$$f $(BUILD)/on_gpu/build/$$f && strip $(BUILD)/on_gpu/build/$$f || exit 1; done
	$(call say,LD,$(BUILD)/on_gpu/build/proxy/libcuda.so.1)$(CC) -std=gnu17 -O1 -Isrc -Iinclude -fPIC -shared -fvisibility=hidden \
	    -o $(BUILD)/on_gpu/build/proxy/libcuda.so.1 tests/cuda/proxy_cuda.c -ldl

#: gpu-checks  the kernels of src/kernels/gpu against double precision on an NVIDIA GPU, and their times: tests/gpu/run.sh
.PHONY: gpu-checks
gpu-checks:
	@mkdir -p $(BUILD)/gpu_checks && TMPDIR=$(BUILD)/gpu_checks CC='$(CC)' sh tests/gpu/run.sh

#: soak        the same tests with AN_SOAK=1: random and fuzz tests run for minutes; then make fuzz, ten minutes a target
soak:
	@AN_SOAK=1 TEST_TIMEOUT=7200 $(MAKE) --no-print-directory test T='$(T)'
	@$(if $(T),,if printf 'int x;' | $(FUZZ_CC) -fsanitize=fuzzer-no-link -xc -c -o /dev/null - 2>/dev/null; \
	     then $(MAKE) --no-print-directory fuzz; \
	     else echo "soak: $(FUZZ_CC) has no libFuzzer, the searches of make fuzz were not run"; fi)

#: asan ubsan tsan valgrind   the tests under a sanitizer or valgrind (T= narrows them)
asan:
	@$(MAKE) --no-print-directory SAN=address test T='$(T)'
ubsan:
	@$(MAKE) --no-print-directory SAN=undefined test T='$(T)'
tsan:
	@$(MAKE) --no-print-directory SAN=thread test T='$(T)'
valgrind:
	@$(MAKE) --no-print-directory WRAP='valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite' test T='$(T)'
