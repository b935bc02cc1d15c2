/* prepare_arc.c: anneal prepare arc: data sets of ARC's puzzles. */
#include "cli/cmd_prepare.h"
#include "cli/progress_bar.h"
#include "io/data/arc_set.h"
#include <signal.h>
#include <string.h>

typedef struct values {
    char out[AN_CONFIG_TEXT_BYTES], output_dir[AN_CONFIG_TEXT_BYTES], from[AN_CONFIG_TEXT_BYTES],
        prefix[AN_CONFIG_TEXT_BYTES], preset[AN_CONFIG_TEXT_BYTES], subsets[AN_CONFIG_TEXT_BYTES],
        test[AN_CONFIG_TEXT_BYTES], test2[AN_CONFIG_TEXT_BYTES];
    int64_t seed, num_aug, identifiers_start;
} values;

#define AT(name) offsetof(values, name)
static const an_config_field fields[] = {
    {"from", AN_CONFIG_TEXT, AT(from), "", 0, 0, NULL,
     "the part before _SUBSET_challenges.json in the files' paths, as in kaggle/combined/arc-agi"},
    {"input_file_prefix", AN_CONFIG_TEXT, AT(prefix), "", 0, 0, NULL, "the same"},
    {"preset", AN_CONFIG_TEXT, AT(preset), "arc1", 0, 0, "arc1|arc2",
     "what the next keys are where they are empty: training,evaluation,concept, tested on evaluation, in "
     "data/arc1concept-aug-NUM_AUG; or training2,evaluation2,concept, on evaluation2, in data/arc2concept-aug-NUM_AUG"},
    {"subsets", AN_CONFIG_TEXT, AT(subsets), "", 0, 0, NULL, "subsets with commas between them"},
    {"test_set_name", AN_CONFIG_TEXT, AT(test), "", 0, 0, NULL, "the subset whose tests are the test split"},
    {"test_set_name2", AN_CONFIG_TEXT, AT(test2), "", 0, 0, NULL, "another one"},
    {"out", AN_CONFIG_TEXT, AT(out), "", 0, 0, NULL, "folder for the data set"},
    {"output_dir", AN_CONFIG_TEXT, AT(output_dir), "", 0, 0, NULL, "the same"},
    {"num_aug", AN_CONFIG_INT, AT(num_aug), "1000", 0, 1e6, NULL,
     "images of each puzzle, beside itself: turned, reflected, colours 1 to 9 exchanged"},
    {"puzzle_identifiers_start", AN_CONFIG_INT, AT(identifiers_start), "1", 1, 1e9, NULL,
     "the first puzzle's identifier; where it follows those of another folder, both can be trained on together"},
    {"seed", AN_CONFIG_INT, AT(seed), "42", 0, 1e15, NULL, "of every choice; the same gives the same files"},
};
const an_config an_prepare_arc_keys = {.fields = fields, .n = AN_COUNT(fields)};

static void settle(values *v, char *folder, size_t bytes)
{
    const bool second = strcmp(v->preset, "arc2") == 0;
    if (!*v->subsets)
        snprintf(v->subsets, sizeof v->subsets,
                 second ? "training2,evaluation2,concept" : "training,evaluation,concept");
    if (!*v->test) snprintf(v->test, sizeof v->test, second ? "evaluation2" : "evaluation");
    if (*v->prefix) memcpy(v->from, v->prefix, sizeof v->from);
    snprintf(folder, bytes, "data/arc%dconcept-aug-%lld", second ? 2 : 1, (long long)v->num_aug);
}

static an_status print_result(an_err *err, const char *out, const an_arc_result *r, bool json)
{
    an_text line = {0};
    if (json) {
        an_text_puts(&line, "{\"out\":");
        an_json_put(&line, out);
        an_text_printf(&line, ",\"train\":%lld,\"train_examples\":%lld,\"test\":%lld,\"test_examples\":%lld",
                       (long long)r->train, (long long)r->train_examples, (long long)r->test,
                       (long long)r->test_examples);
        an_text_printf(&line, ",\"puzzle_identifiers\":%lld,\"few\":%lld,\"unsolved\":%lld}", (long long)r->images,
                       (long long)r->few, (long long)r->unsolved);
        return an_print_line(err, &line);
    }
    an_text_printf(&line,
                   "%s: %lld puzzles, %lld with their images; %lld examples for training, and %lld of %lld puzzles for "
                   "testing",
                   out, (long long)r->train, (long long)r->images, (long long)r->train_examples,
                   (long long)r->test_examples, (long long)r->test);
    if (r->few) an_text_printf(&line, "; %lld have fewer images than asked", (long long)r->few);
    if (r->unsolved)
        an_text_printf(&line, "; the solutions of %lld test puzzles are not known", (long long)r->unsolved);
    return an_print_line(err, &line);
}

an_status an_cmd_prepare_arc(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    values v;
    an_arc_result result;
    an_prepare_folder made;
    char folder[96], tests[2 * AN_CONFIG_TEXT_BYTES + 2];
    AN_TRY(an_config_defaults(err, &an_prepare_arc_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_prepare_arc_keys, &v}, 1));
    settle(&v, folder, sizeof folder);
    if (!*v.from)
        return an_fail(err, AN_E_USAGE,
                       "prepare arc: from=PREFIX is needed, where PREFIX_training_challenges.json is one of the files "
                       "(TinyRecursiveModels has them in kaggle/combined, PREFIX being kaggle/combined/arc-agi)");
    signal(SIGXFSZ, SIG_IGN);
    snprintf(tests, sizeof tests, "%s%s%s", v.test, *v.test2 ? "," : "", v.test2);
    const char *out = an_prepare_out(v.out, v.output_dir, folder);
    AN_TRY(an_prepare_begin(err, out, &made));
    an_bar *bar = an_bar_open(args, "prepare", "puzzles", NULL, NULL);
    const an_arc_options o = {.prefix = v.from,
                              .subsets = v.subsets,
                              .test_subsets = tests,
                              .out = made.scratch.path,
                              .num_aug = v.num_aug,
                              .identifiers_start = v.identifiers_start,
                              .seed = (uint64_t)v.seed,
                              .tell = an_bar_tell,
                              .tell_arg = bar};
    an_status status = an_arc_build(err, &o, &result);
    an_bar_close(bar);
    AN_TRY(an_prepare_end(err, &made, status));
    return print_result(err, out, &result, args->json);
}
