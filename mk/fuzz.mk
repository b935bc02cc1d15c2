# fuzz.mk: searches with libFuzzer for bytes that break a reader. Each tests/fuzz/test_fuzz_NAME.c is a target; what a search keeps
# (tests/fuzz/corpus/NAME, a few small files that reach all that the search reached) is replayed by the ordinary test.

FUZZ_CC      ?= clang
FUZZ_BUILD   := build/fuzz
FUZZ_SECONDS ?= 600
FUZZ_NAMES   := $(patsubst tests/fuzz/test_fuzz_%.c,%,$(sort $(wildcard tests/fuzz/test_fuzz_*.c)))
# The whole library, with the portable kernels alone and unoptimized, and what reads files in cli/: a search links what its reader needs.
FUZZ_MAKE     = $(MAKE) --no-print-directory CC=$(FUZZ_CC) SAN=address,undefined BUILD=$(FUZZ_BUILD) ISAS=portable TILE_ISAS=amx_emulated TMPL_CFLAGS=-O0 \
                SRCS='$(SRCS) src/cli/trm_yaml.c src/cli/trm_argv.c' EXTRA_CFLAGS='-fsanitize=fuzzer-no-link -fno-sanitize=function'

.PHONY: fuzz fuzz-library fuzz-programs fuzz-corpus

fuzz-programs: $(FUZZ_NAMES:%=$(FUZZ_BUILD)/search/%)
fuzz-library:
	@$(FUZZ_MAKE) $(FUZZ_BUILD)/libanneal.a
$(FUZZ_BUILD)/search/%: tests/fuzz/test_fuzz_%.c tests/fuzz/fuzz.h tests/lib/files.c tests/lib/make_zip.h fuzz-library
	@mkdir -p $(@D)
	$(call say,CC,$< (libFuzzer))$(FUZZ_CC) $(CPPFLAGS) -Itests $(filter-out -Werror,$(CFLAGS)) $(LIB_CFLAGS) -DAN_LIBFUZZER \
	    -fsanitize=fuzzer,address,undefined -o $@ $< tests/lib/files.c $(FUZZ_BUILD)/libanneal.a $(LIBS) -lcmocka

#: fuzz        searches FUZZ_SECONDS=600 a target (N=torch: one) with clang's libFuzzer; make soak does it too
fuzz: $(if $(N),$(FUZZ_BUILD)/search/$(N),fuzz-programs)
	@for name in $(or $(N),$(FUZZ_NAMES)); do \
	     mkdir -p $(FUZZ_BUILD)/found/$$name tests/fuzz/corpus/$$name && \
	     AN_FUZZ_SEEDS=$(FUZZ_BUILD)/found/$$name $(FUZZ_BUILD)/search/$$name -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=20 -rss_limit_mb=2048 \
	         -artifact_prefix=$(FUZZ_BUILD)/$$name- -verbosity=0 -print_final_stats=1 \
	         $(FUZZ_BUILD)/found/$$name tests/fuzz/corpus/$$name >$(FUZZ_BUILD)/$$name.log 2>&1; status=$$?; \
	     tail -n 12 $(FUZZ_BUILD)/$$name.log | sed -n "s/^stat::\(number_of_executed_units\|peak_rss_mb\)/fuzz $$name: \1/p"; \
	     [ $$status -eq 0 ] || { echo "fuzz $$name: FAILED, see $(FUZZ_BUILD)/$$name.log"; exit 1; }; \
	 done

#: fuzz-corpus keeps the fewest of the files that searches found in tests/fuzz/corpus (at most 8 KiB each)
fuzz-corpus: $(if $(N),$(FUZZ_BUILD)/search/$(N),fuzz-programs)
	@for name in $(or $(N),$(FUZZ_NAMES)); do \
	     mkdir -p $(FUZZ_BUILD)/found/$$name tests/fuzz/corpus/$$name && \
	     $(FUZZ_BUILD)/search/$$name -set_cover_merge=1 -max_len=8192 tests/fuzz/corpus/$$name $(FUZZ_BUILD)/found/$$name 2>&1 | tail -n 1; \
	 done
