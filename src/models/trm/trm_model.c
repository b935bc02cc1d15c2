/* trm_model.c: TRM's entry in the model registry (models/model.h): settings, presets, and the functions that build, count
 * and describe the network of trm.h with the halting of act.h. */
#include "models/trm/trm_export.h"
#include "models/trm/trm_model.h"
#include "models/trm/trm_weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings */

#define AT(name) offsetof(an_trm_settings, name)
#define INT(key, place, initial, low, high, doc)                                                                       \
    {                                                                                                                  \
        key, AN_CONFIG_INT, AT(place), initial, low, high, NULL, doc                                                   \
    }
#define REAL(key, place, initial, low, high, doc)                                                                      \
    {                                                                                                                  \
        key, AN_CONFIG_FLOAT, AT(place), initial, low, high, NULL, doc                                                 \
    }
#define BOOL(key, place, initial, doc)                                                                                 \
    {                                                                                                                  \
        key, AN_CONFIG_BOOL, AT(place), initial, 0, 0, NULL, doc                                                       \
    }

static const an_config_field fields[] = {
    INT("vocab_size", vocab_size, "0", 0, 1 << 24, "tokens of the model; 0: as many as the data has"),
    INT("arch.seq_len", seq_len, "0", 0, 1 << 20, "cells or tokens of a sample; 0: as the data has it"),
    INT("num_puzzle_identifiers", puzzles, "0", 0, 1 << 30, "rows of the puzzle table; 0: as the data has it"),
    INT("arch.hidden_size", hidden_size, "512", 1, 65536, "width"),
    INT("arch.num_heads", num_heads, "8", 1, 4096, "attention heads, of hidden_size / num_heads each, rounded down"),
    INT("arch.L_layers", L_layers, "2", 1, 256, "layers, shared by all updates of z_H and z_L"),
    INT("arch.H_cycles", H_cycles, "3", 1, 256, "cycles of a supervision step, of which the last is differentiated"),
    INT("arch.L_cycles", L_cycles, "6", 1, 256, "updates of z_L in a cycle, before that of z_H"),
    REAL("arch.expansion", expansion, "4", 0.001, 64, "of SwiGLU: inner width = expansion * width * 2/3"),
    INT("arch.puzzle_emb_ndim", puzzle_emb_ndim, "-1", -1, 1 << 20,
        "width of a row of the puzzle table; 0: no table, -1: hidden_size"),
    INT("arch.puzzle_emb_len", puzzle_emb_len, "16", 0, 65536, "positions before the data that the row fills"),
    {"arch.pos_encodings", AN_CONFIG_TEXT, AT(pos_encodings), "rope", 0, 0, "rope|learned|none", "positions"},
    REAL("arch.rope_theta", rope_theta, "10000", 1, 1e12, "base of the rotary frequencies"),
    REAL("arch.rms_norm_eps", rms_norm_eps, "1e-5", 0, 1, "added to the mean square in a norm"),
    BOOL("arch.mlp_t", mlp_t, "false", "a SwiGLU over positions in place of attention"),
    BOOL("arch.causal", causal, "false", "attention sees earlier positions only; no Q head"),
    BOOL("arch.tie_head", tie_head, "false", "the output head is the token embedding"),
    INT("arch.halt_max_steps", halt_max_steps, "16", 1, 1 << 16, "supervision steps that a sample takes at most"),
    REAL("arch.halt_exploration_prob", halt_exploration_prob, "0.1", 0, 1,
         "share of samples that must go on for a random number of steps"),
    BOOL("arch.no_ACT_continue", no_ACT_continue, "true",
         "halt where q_halt > 0; false: where q_halt > q_continue, learned from a second call"),
    {"arch.loss.loss_type", AN_CONFIG_TEXT, AT(loss_type), "stablemax_cross_entropy", 0, 0,
     "stablemax_cross_entropy|softmax_cross_entropy", "of tokens"},
    REAL("puzzle_emb_lr", puzzle_emb_lr, "1e-2", 0, 100, "peak learning rate of the puzzle table"),
    REAL("puzzle_emb_weight_decay", puzzle_emb_weight_decay, "0.1", 0, 100, "of rows that take part in an update"),
    INT("eval_steps", eval_steps, "0", 0, 1 << 16, "supervision steps in an evaluation; 0: halt_max_steps"),
    BOOL("eval_halt", eval_halt, "false", "in an evaluation a sample stops where q_halt > 0"),
    {"eval_ids", AN_CONFIG_TEXT, AT(eval_ids), "puzzle", 0, 0, "puzzle|blank",
     "in an evaluation: each puzzle's row of the table, or the blank one for all"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

static const char *const changeable[] = {"arch.halt_exploration_prob",
                                         "puzzle_emb_lr",
                                         "puzzle_emb_weight_decay",
                                         "eval_steps",
                                         "eval_halt",
                                         "eval_ids",
                                         NULL};
static const char *const weight_keys[] = {"vocab_size",          "arch.hidden_size",   "arch.num_heads",
                                          "arch.L_layers",       "arch.expansion",     "arch.puzzle_emb_ndim",
                                          "arch.puzzle_emb_len", "arch.pos_encodings", "arch.mlp_t",
                                          "arch.causal",         "arch.tie_head",      NULL};
static const char *const halve[] = {"arch.hidden_size", "arch.L_layers", NULL};
static const an_key_alias aliases[] = {{"seq", "arch.seq_len"},     {"layers", "arch.L_layers"},
                                       {"heads", "arch.num_heads"}, {"width", "arch.hidden_size"},
                                       {"vocab", "vocab_size"},     {NULL, NULL}};

static bool is(const char *text, const char *word)
{
    return strcmp(text, word) == 0;
}

/* Sizes that the data have not settled yet are taken as the smallest ones. */
an_trm_config an_trm_config_from(const an_trm_settings *s)
{
    return (an_trm_config){.vocab = s->vocab_size ? s->vocab_size : 2,
                           .seq = s->seq_len ? s->seq_len : 1,
                           .puzzles = s->puzzles ? s->puzzles : 1,
                           .width = s->hidden_size,
                           .heads = s->num_heads,
                           .layers = s->L_layers,
                           .expansion = s->expansion,
                           .H_cycles = s->H_cycles,
                           .L_cycles = s->L_cycles,
                           .puzzle_width = s->puzzle_emb_ndim < 0 ? s->hidden_size : s->puzzle_emb_ndim,
                           .puzzle_length = s->puzzle_emb_len,
                           .norm_eps = s->rms_norm_eps,
                           .rope_theta = s->rope_theta,
                           .positions = is(s->pos_encodings, "rope")      ? AN_TRM_ROPE
                                        : is(s->pos_encodings, "learned") ? AN_TRM_LEARNED
                                                                          : AN_TRM_NO_POSITIONS,
                           .mlp_t = s->mlp_t,
                           .causal = s->causal,
                           .tie_head = s->tie_head,
                           .steps = s->halt_max_steps,
                           .dtype = AN_F32};
}

int64_t an_trm_calls(const an_trm_settings *s)
{
    return s->eval_steps > 0 ? s->eval_steps : s->halt_max_steps;
}

static an_status check(an_err *err, const void *settings, int64_t batch)
{
    const an_trm_config c = an_trm_config_from(settings);
    const char *fault = an_trm_fault(&c);
    if (fault)
        return an_fail(err, AN_E_USAGE,
                       "%s (arch.hidden_size=%lld arch.num_heads=%lld arch.L_layers=%lld arch.seq_len=%lld)", fault,
                       (long long)c.width, (long long)c.heads, (long long)c.layers, (long long)c.seq);
    if (batch > INT32_MAX / an_trm_length(&c) / c.width)
        return an_fail(err, AN_E_USAGE,
                       "batch_size=%lld of %lld positions: a batch has at most %lld samples; use a smaller one, and "
                       "gradient_accumulation_steps",
                       (long long)batch, (long long)an_trm_length(&c),
                       (long long)(INT32_MAX / an_trm_length(&c) / c.width));
    return AN_OK;
}

static an_status adopt(an_err *err, const void *from, const char *name, void *settings)
{
    const an_trm_settings *file = from;
    an_trm_settings *s = settings;
    if (s->causal != file->causal)
        return an_fail(err, AN_E_USAGE, "init_from=%s: its weights are of a model with arch.causal=%s", name,
                       file->causal ? "true" : "false");
    an_trm_settings taken = *file;
    taken.eval_steps = s->eval_steps;
    taken.eval_halt = s->eval_halt;
    memcpy(taken.eval_ids, s->eval_ids, sizeof taken.eval_ids);
    taken.puzzle_emb_lr = s->puzzle_emb_lr;
    taken.puzzle_emb_weight_decay = s->puzzle_emb_weight_decay;
    taken.halt_exploration_prob = s->halt_exploration_prob;
    *s = taken;
    return AN_OK;
}

static void miniature(void *settings)
{
    an_trm_settings *s = settings;
    s->hidden_size = AN_MIN(s->hidden_size, 64);
    s->num_heads = AN_MIN(s->num_heads, 2);
    s->H_cycles = AN_MIN(s->H_cycles, 2);
    s->L_cycles = AN_MIN(s->L_cycles, 2);
    s->halt_max_steps = AN_MIN(s->halt_max_steps, 4);
}

/* ---- graphs */

static void *open_model(an_ctx *cx, const void *settings)
{
    const an_trm_settings *s = settings;
    const an_trm_config c = an_trm_config_from(s);
    an_act *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->m = an_trm_open(cx, &c);
    a->micros = a->ranks = 1;
    a->c = (an_act_config){.explore = s->halt_exploration_prob,
                           .stablemax = is(s->loss_type, "stablemax_cross_entropy"),
                           .no_continue = s->no_ACT_continue,
                           .eval_halt = s->eval_halt,
                           .blank_ids = is(s->eval_ids, "blank"),
                           .puzzle_lr = s->puzzle_emb_lr,
                           .puzzle_decay = s->puzzle_emb_weight_decay};
    if (a->m) return a;
    free(a);
    return NULL;
}

static void close_model(void *model)
{
    an_act *a = model;
    if (a) an_trm_close(a->m);
    free(a);
}

static int inputs(const void *settings, int64_t samples, an_array out[AN_MAX_ARRAYS])
{
    const an_trm_config c = an_trm_config_from(settings);
    const an_shape shape = AN_SHAPE(samples, c.seq); /* [B,S] */
    out[0] = (an_array){.name = "inputs", .dtype = AN_I32, .shape = shape, .limit = c.vocab};
    out[1] = (an_array){.name = "labels", .dtype = AN_I32, .shape = shape, .limit = c.vocab};
    out[2] = (an_array){.name = "puzzle_identifiers", .dtype = AN_I32, .shape = AN_SHAPE(samples), .limit = c.puzzles};
    return 3;
}

static const an_sum *sums(const void *settings)
{
    static const an_sum puzzles[] = {
        {"loss", NULL},        {"accuracy", "halted"}, {"exact_accuracy", "halted"}, {"q_halt_accuracy", "halted"},
        {"q_halt_loss", NULL}, {"lm_loss", NULL},      {"steps", "halted"},          {"halted", NULL},
        {NULL, NULL}};
    static const an_sum texts[] = {{"loss", "labelled"}, {"labelled", NULL}, {NULL, NULL}};
    const an_trm_settings *s = settings;
    return s->causal ? texts : puzzles;
}

static void place(void *model, const an_place *p)
{
    an_act *a = model;
    a->micro = p->micro;
    a->micros = p->micros;
    a->ranks = p->ranks;
    a->call = p->call;
    a->lr_share = p->lr_share;
}

static an_losses losses(void *model, an_tensor *const *in, bool training)
{
    an_losses out = {0};
    const an_act_losses l = training ? an_act_train(model, in) : an_act_evaluate(model, in);
    out.loss = l.loss;
    for (int i = 0; i < AN_ACT_SUMS; i++) out.sum[i] = l.sum[i];
    return out;
}

static bool update(void *model, an_tensor *only_if)
{
    return an_act_update(model, only_if);
}

static int64_t calls(const void *settings)
{
    return an_trm_calls(settings);
}

/* "carry.3.z_H" belongs to micro-batch 3. */
static int64_t state_micro(const char *state)
{
    static const char carry[] = "carry.";
    const size_t n = sizeof carry - 1;
    return strncmp(state, carry, n) == 0 && state[n] >= '0' && state[n] <= '9' ? strtoll(state + n, NULL, 10)
                                                                               : AN_STATE_OF_ALL;
}

static void answer(void *model, an_tensor *const *in, an_tensor **out, an_tensor **right)
{
    an_act_solve(model, in[0], in[2], out, right);
}

static int64_t context(const void *settings)
{
    const an_trm_config c = an_trm_config_from(settings);
    return c.causal ? c.seq : 0;
}

static int64_t vocabulary(const void *settings)
{
    return an_trm_config_from(settings).vocab;
}

static an_tensor *prefill(void *model, an_tensor *tokens, an_tensor *last)
{
    return an_trm_prefill(((an_act *)model)->m, tokens, last);
}

static an_tensor *decode(void *model, an_tensor *token, an_tensor *position, an_tensor *n_keys)
{
    return an_trm_decode(((an_act *)model)->m, token, position, n_keys);
}

static const an_decoder decoder = {.context = context, .vocabulary = vocabulary, .prefill = prefill, .decode = decode};

/* ---- numbers and words */

static void count(const void *settings, int64_t samples, an_model_counts *out)
{
    const an_trm_config c = an_trm_config_from(settings);
    const double forward = an_trm_call_flops(&c), cycles = (double)c.H_cycles;
    const double flops = forward * ((cycles - 1) + 3) / cycles * (double)samples; /* one cycle is differentiated */
    *out = (an_model_counts){.parameters = an_trm_parameters(&c),
                             .parameters_printed = an_trm_parameters(&c),
                             .largest = an_trm_largest(&c),
                             .flops = flops,
                             .flops_printed = flops};
}

static void describe(const void *settings, const char *parameters, an_text *out)
{
    const an_trm_config c = an_trm_config_from(settings);
    an_text_printf(
        out, "%s): %lld layers applied %lld times a step,\n        %s, width %lld, vocabulary %lld, %lld cells",
        parameters, (long long)c.layers, (long long)(c.H_cycles * (c.L_cycles + 1)),
        c.mlp_t ? "mixing positions by SwiGLU" : "attention", (long long)c.width, (long long)c.vocab, (long long)c.seq);
    if (c.puzzle_width > 0) an_text_printf(out, ", %lld puzzle rows", (long long)c.puzzles);
    an_text_puts(out, "\n");
}

/* Sudoku boards that the program makes, for any CPU. */
#define MADE                                                                                                           \
    "batch_size=32 arch.hidden_size=64 arch.num_heads=2 arch.mlp_t=true arch.pos_encodings=none "                      \
    "arch.puzzle_emb_ndim=0 arch.H_cycles=2 arch.L_cycles=2 arch.halt_max_steps=4 learning_rate=2e-3 "                 \
    "lr_min_ratio=0.1 "                                                                                                \
    "ema=true ema_rate=0.99 log_interval=50 eval_iters=8 "
/* TinyRecursiveModels' recipes; their warm-up of 2000 updates reaches the peak at update 1999, counted from 0. */
#define RECIPE                                                                                                         \
    "batch_size=768 divide_batch=8 learning_rate=1e-4 lr_min_ratio=1 warmup_iters=1999 dtype=bfloat16 ema=true "       \
    "ema_rate=0.999 log_interval=10 keep=-1 "
#define SMALL_DATA                                                                                                     \
    RECIPE "weight_decay=1.0 puzzle_emb_lr=1e-4 puzzle_emb_weight_decay=1.0 epochs=50000 epochs_per_pass=5000 "        \
           "eval_interval=6510 "
#define SUDOKU SMALL_DATA "data=data/sudoku-extreme-1k-aug-1000 vocab_size=11 arch.seq_len=81 num_puzzle_identifiers=1 "
#define ARC                                                                                                            \
    RECIPE "vocab_size=12 arch.seq_len=900 arch.L_cycles=4 epochs=100000 epochs_per_pass=10000 eval_interval=10000 "

#define CHAT                                                                                                           \
    "data=data/chat-dataset arch.causal=true arch.puzzle_emb_ndim=0 arch.puzzle_emb_len=0 "                            \
    "arch.loss.loss_type=softmax_cross_entropy arch.halt_max_steps=1 arch.halt_exploration_prob=0 arch.H_cycles=1 "    \
    "arch.L_cycles=1 optimizer=adam_atan2 decay=all learning_rate=3e-4 beta1=0.9 beta2=0.95 weight_decay=0.1 "         \
    "ema=true ema_rate=0.999 seed=0 epochs=100 eval_epochs=10 eval_iters=0 dtype=bfloat16 log_interval=1 "

static const an_preset presets[] = {
    {"sudoku_4x4", "two minutes on a laptop's CPU: a tiny recursive model learns Sudoku 4x4, from boards made here",
     MADE "data=sudoku_4x4 max_iters=1200 lr_decay_iters=1200 warmup_iters=50 eval_interval=200", 20, 4, NULL},
    {"sudoku_6x6", "the same for 6x6, wider and longer",
     MADE "data=sudoku_6x6 arch.hidden_size=128 arch.H_cycles=3 arch.halt_max_steps=8 max_iters=5000 "
          "lr_decay_iters=5000 warmup_iters=100 eval_interval=500",
     10, 4, NULL},
    {"sudoku_mlp", "TinyRecursiveModels on Sudoku-Extreme, mixing cells by a SwiGLU; needs data=FOLDER",
     SUDOKU "arch.mlp_t=true arch.pos_encodings=none", 1, 1, NULL},
    {"sudoku_att", "the same with attention", SUDOKU, 1, 1, NULL},
    {"maze", "TinyRecursiveModels on mazes of 30x30; needs data=FOLDER",
     SMALL_DATA "data=data/maze-30x30-hard-1k vocab_size=6 arch.seq_len=900 num_puzzle_identifiers=1 arch.L_cycles=4",
     1, 1, NULL},
    {"arc1", "TinyRecursiveModels on ARC-AGI-1; needs data=FOLDER", ARC "data=data/arc1concept-aug-1000", 1, 1, NULL},
    {"arc2", "TinyRecursiveModels on ARC-AGI-2; needs data=FOLDER", ARC "data=data/arc2concept-aug-1000", 1, 1, NULL},
    {"cfg_chat", "conversations: as TinyRecursiveModels' cfg_chat, 105.5M parameters with GPT-2's tokens",
     CHAT "arch.hidden_size=768 arch.L_layers=4 arch.num_heads=12 batch_size=32", 2, 1, "chat"},
    {"chat_tiny", "conversations: 58.3M parameters",
     CHAT "arch.hidden_size=512 arch.L_layers=2 arch.num_heads=8 batch_size=8", 2, 1, "chat"},
    {"chat_small", "conversations: 105.5M parameters",
     CHAT "arch.hidden_size=768 arch.L_layers=4 arch.num_heads=12 batch_size=8", 2, 1, "chat"},
    {"chat_medium", "conversations: 180.0M parameters",
     CHAT "arch.hidden_size=1024 arch.L_layers=6 arch.num_heads=16 batch_size=8", 2, 1, "chat"},
    {"chat_large", "conversations: 257.1M parameters",
     CHAT "arch.hidden_size=1024 arch.L_layers=12 arch.num_heads=16 batch_size=8", 2, 1, "chat"},
    {"cfg_pretrain", "TinyRecursiveModels' default settings: ARC; needs data=FOLDER",
     "batch_size=768 divide_batch=8 learning_rate=1e-4 lr_min_ratio=1 warmup_iters=1999 dtype=bfloat16 log_interval=10 "
     "keep=-1 seed=0 "
     "data=data/arc-aug-1000 epochs=100000 epochs_per_pass=10000 eval_interval=10000",
     1, 1, NULL},
};

static const an_weight_formats weights = {
    .layouts = "anneal|trm|torch|torch_compiled",
    .layouts_doc = "anneal: our names; trm: TinyRecursiveModels' state dict; torch, torch_compiled: "
                   "that by torch.save, with an all_config.yaml beside, out=RUN/step_1000 for example",
    .recognizes = an_trm_weights_are_ours,
    .import = an_trm_weights_import,
    .write = an_trm_weights_write,
    .settings_name = "all_config.yaml",
    .settings = an_trm_settings_text};

const an_model an_trm_model = {.name = "trm",
                               .task = "puzzle",
                               .keys = &keys,
                               .n_data_keys = 3,
                               .settings_bytes = sizeof(an_trm_settings),
                               .changeable = changeable,
                               .weight_keys = weight_keys,
                               .halve = halve,
                               .too_large = "no smaller batch or model: gradient_accumulation_steps, or more memory",
                               .aliases = aliases,
                               .defaults = "data=sudoku_4x4 optimizer=adam_atan2 decay=all grad_clip=0 eval_iters=0",
                               .presets = presets,
                               .n_presets = AN_COUNT(presets),
                               .check = check,
                               .adopt = adopt,
                               .miniature = miniature,
                               .open = open_model,
                               .close = close_model,
                               .inputs = inputs,
                               .sums = sums,
                               .evaluated = "halted",
                               .losses = losses,
                               .place = place,
                               .update = update,
                               .calls = calls,
                               .state_micro = state_micro,
                               .answer = answer,
                               .decoder = &decoder,
                               .count = count,
                               .describe = describe,
                               .weights = &weights};
