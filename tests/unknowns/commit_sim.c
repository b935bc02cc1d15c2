/* commit_sim.c: a model of the commit protocol, attacked by failures until it breaks or is believed.
 *
 * Question: which words and orders make "failed GPU work is never ignored" true? After any number of failures the
 * parameters must equal the undisturbed run's, bit for bit.
 *
 * Model: device memory is a struct; a step is a list of launches in command buffers; a launch has work groups, a group
 * writes in two phases. Whatever is not ordered runs in random order. A failing command buffer does a random part of
 * its work that respects the order (nothing and everything included) and reports an error. Updates in place cannot be
 * undone. Numbers are 64-bit hashes, so that nothing wrong can look right.
 *
 * Result: a table of protocols and worlds, with the number of runs that ended with other parameters. A protocol that is
 * believed must have none, one that is known to be insufficient must have some: otherwise the attack is too weak, and
 * that is a failure of this program too. Exit code 0: the table is as expected.
 *
 * The protocol P2, with s the step, cb the command buffer, and (s-1, last) the one before (s, 0):
 *
 *   progress:  each command buffer ends with: if progress is the one before (s, cb), progress = (s, cb)
 *
 *   begun:     the commit group starts with: if bad != s && committed == s-1 && progress is the one before (s, cb),
 *              begun = s
 *
 *   updates:   each, if begun == s && committed == s-1 && bad != s
 *
 *   committed: after all updates: if the same holds && progress is the one before (s, cb), committed = s
 *
 *   recovery:  wait until nothing is in flight. begun != committed is torn: load the checkpoint and set the words from
 *              it. Otherwise nothing was lost. The next step is committed + 1, and progress is set to (committed,
 * last). Where the memory is gone with the failure (a CUDA context after a sticky error), all failures are torn.
 *
 * A launch that writes a word is ordered, by a barrier, after all launches of its command buffer that the word speaks
 * of.
 *
 * What each part is for: without begun, a half-done group looks like one that was not reached (P0). Without the chain,
 * a device that goes on with the next command buffer after a failed one commits what was computed from half a gradient
 * (P1). A device that goes on inside a command buffer needs a completion count for every work group (P3). */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 12, BLOCKS = 3, GROUPS = 4, MICRO = 2, DEPTH_MAX = 3, LAUNCHES_MAX = 32, CHECKPOINT_EVERY = 5 };

typedef struct state { /* what a checkpoint holds */
    uint64_t param[BLOCKS][GROUPS], moment[BLOCKS][GROUPS];
    int skipped; /* batches that were passed over because of a NaN: shifts the data */
} state;

typedef struct memory {
    state s;
    uint64_t activation[GROUPS], gradient[BLOCKS][GROUPS], norm;
    int bad, begun, committed;           /* step numbers */
    uint64_t progress;                   /* the last command buffer that completed in an unbroken row: see word() */
    uint64_t done[LAUNCHES_MAX][GROUPS]; /* tag of the last completed run of each group (COUNTS) */
} memory;

typedef enum kind { FORWARD, BACKWARD, NORM, BEGIN, UPDATE, END, CHAIN } kind;

typedef struct launch {
    kind kind;
    int cb, block, micro, groups;
    uint32_t after; /* launches of the same command buffer that must have completed */
} launch;

enum { BEGUN = 1, CHAINED = 2, COUNTS = 4, SPLIT = 8, NO_BARRIERS = 16, NO_RESET = 32 }; /* parts of a protocol */
enum { STOP, GO_ON, WEAK };                                                              /* worlds */

typedef struct run {
    memory m, checkpoint;
    launch l[LAUNCHES_MAX];
    int n, cbs, parts, world, failures_left;
    uint64_t rng, attempt;
    bool dead; /* world STOP: the queue has failed, nothing runs until recovery */
    bool error[STEPS + DEPTH_MAX + 1];
    int reloads, replays;
} run;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
static uint64_t mix2(uint64_t a, uint64_t b)
{
    return mix(mix(a + 0x9e3779b97f4a7c15u) ^ b);
}
static int draw(run *r, int n)
{
    return (int)(mix(r->rng += 0x9e3779b97f4a7c15u) % (uint64_t)n);
}

/* Steps 4 and 9 meet a NaN, once: the next batch is good. */
static bool batch_is_bad(int step, int skipped)
{
    return (step == 4 && skipped == 0) || (step == 9 && skipped == 1);
}

static int add(run *r, launch l)
{
    r->l[r->n] = l;
    return r->n++;
}

/* Closes command buffer `cb`: the chain word after all that it holds. */
static void close_cb(run *r, int cb)
{
    if (!(r->parts & CHAINED)) return;
    uint32_t all = 0;
    for (int i = 0; i < r->n; i++)
        if (r->l[i].cb == cb) all |= 1u << i;
    add(r, (launch){CHAIN, cb, 0, 0, 1, all});
}

/* MICRO command buffers of forward and backward, then one (SPLIT: two) with the norm and the commit group. */
static void build(run *r)
{
    r->n = 0;
    for (int k = 0; k < MICRO; k++) {
        int f = add(r, (launch){FORWARD, k, 0, k, GROUPS, 0});
        for (int b = 0; b < BLOCKS; b++) add(r, (launch){BACKWARD, k, b, k, GROUPS, 1u << f});
        close_cb(r, k);
    }
    int cb = MICRO;
    int norm = add(r, (launch){NORM, cb, 0, 0, 1, 0});
    int begin = add(r, (launch){BEGIN, cb, 0, 0, 1, 1u << norm});
    uint32_t updates = 0;
    for (int b = 0; b < BLOCKS; b++) {
        if (b == 1 && (r->parts & SPLIT)) close_cb(r, cb++);
        uint32_t after = cb == MICRO ? 1u << begin | 1u << norm : 0;
        int u = add(r, (launch){UPDATE, cb, b, 0, GROUPS, after});
        if (cb == MICRO + (r->parts & SPLIT ? 1 : 0)) updates |= 1u << u;
    }
    if (cb == MICRO) updates |= 1u << begin;
    add(r, (launch){END, cb, 0, 0, 1, r->parts & NO_BARRIERS ? 0 : updates});
    close_cb(r, cb);
    r->cbs = cb + 1;
}

/* What `progress` holds when command buffer `cb` of `step` has completed. The word before (step, 0) is (step-1, last).
 */
static uint64_t word(const run *r, int step, int cb)
{
    return (uint64_t)(step * r->cbs + cb);
}

static uint64_t tag(const run *r, int step)
{
    return r->attempt << 32 | (uint64_t)step;
}

/* COUNTS: every launch before this one, in whatever command buffer, has completed all its groups in this attempt. */
static bool all_before_are_done(const run *r, int i, int step)
{
    for (int j = 0; j < i; j++) {
        const launch *p = &r->l[j];
        bool before = p->cb < r->l[i].cb || r->l[i].after >> j & 1;
        for (int g = 0; before && g < p->groups; g++)
            if (r->m.done[j][g] != tag(r, step)) return false;
    }
    return true;
}

static bool may_commit(const run *r, const launch *l, int step)
{
    const memory *m = &r->m;
    if (m->bad == step || m->committed != step - 1) return false;
    if (l->kind != UPDATE && r->parts & CHAINED && m->progress + 1 != word(r, step, l->cb)) return false;
    return l->kind == BEGIN || !(r->parts & BEGUN) || m->begun == step;
}

/* One phase (0, 1) of group g of launch i of `step`. */
static void execute(run *r, int i, int g, int phase, int step)
{
    memory *m = &r->m;
    const launch *l = &r->l[i];
    if (r->parts & COUNTS && !all_before_are_done(r, i, step)) return;
    bool commit = l->kind == BEGIN || l->kind == UPDATE || l->kind == END;
    if (commit && !may_commit(r, l, step)) return;
    uint64_t data = mix2((uint64_t)(step * 100 + l->micro), (uint64_t)m->s.skipped);
    uint64_t *gradient = &m->gradient[l->block][g];
    switch (l->kind) {
    case FORWARD:
        if (phase == 0)
            m->activation[g] = mix2(m->s.param[0][g] ^ m->s.param[1][(g + 1) % GROUPS], data ^ m->s.param[2][g]);
        break;
    case BACKWARD: /* the first micro-batch overwrites, the others add */
        if (phase == 0)
            *gradient = (l->micro == 0 ? 0 : *gradient) + mix2(m->activation[g], m->s.param[l->block][g] + data);
        break;
    case NORM:
        if (phase == 0) m->norm = 0;
        for (int b = 0; b < BLOCKS; b++) m->norm = mix2(m->norm, m->gradient[b][g]);
        if (phase == 1 && batch_is_bad(step, m->s.skipped)) m->bad = step;
        break;
    case BEGIN:
        if (phase == 1) m->begun = step;
        break;
    case UPDATE: {
        uint64_t *p = &m->s.param[l->block][g], *v = &m->s.moment[l->block][g];
        if (phase == 0) *v = mix2(*v, *gradient);
        if (phase == 1) *p = mix2(*p ^ *v, m->norm);
        break;
    }
    case END:
        if (phase == 1) m->committed = step;
        break;
    case CHAIN:
        if (phase == 1 && m->progress + 1 == word(r, step, l->cb)) m->progress++;
        break;
    }
    if (phase == 1) m->done[i][g] = tag(r, step);
}

/* Runs command buffer `cb` in a random order that respects `after`; stops after `budget` units of work (-1: never). In
 * the weak world the launch that was cut off stays so, and all others of the buffer run. */
static void run_cb(run *r, int cb, int step, int budget)
{
    int next[LAUNCHES_MAX][GROUPS] = {{0}}, left[LAUNCHES_MAX] = {0};
    uint32_t open = 0, lost = 0;
    for (int i = 0; i < r->n; i++)
        if (r->l[i].cb == cb) open |= 1u << i, left[i] = 2 * r->l[i].groups;
    while (open != 0) {
        int i = draw(r, r->n), g = draw(r, GROUPS);
        if (!(open >> i & 1) || g >= r->l[i].groups || next[i][g] == 2) continue;
        if (r->l[i].after & open & ~lost) continue;
        if (budget == 0 && r->world != WEAK) return;
        if (budget == 0) {
            lost |= 1u << i;
            open &= ~(1u << i);
            budget = -1;
            continue;
        }
        if (budget > 0) budget--;
        execute(r, i, g, next[i][g]++, step);
        if (--left[i] == 0) open &= ~(1u << i);
    }
}

static void submit(run *r, int step)
{
    r->error[step] = false;
    for (int cb = 0; cb < r->cbs; cb++) {
        if (r->dead) {
            r->error[step] = true;
            continue;
        }
        bool fails = r->failures_left > 0 && draw(r, 12) == 0;
        int work = 0;
        for (int i = 0; i < r->n; i++) work += r->l[i].cb == cb ? 2 * r->l[i].groups : 0;
        run_cb(r, cb, step, fails ? draw(r, work + 1) : -1);
        if (!fails) continue;
        r->failures_left--;
        r->error[step] = true;
        r->dead = r->world == STOP;
    }
}

/* Nothing is in flight. Returns the next step. */
static int recover(run *r)
{
    memory *m = &r->m;
    bool torn = r->parts & BEGUN && m->begun != m->committed;
    if (torn) {
        m->s = r->checkpoint.s;
        m->committed = m->begun = r->checkpoint.committed;
        r->reloads++;
    } else {
        r->replays++;
    }
    if (!(r->parts & NO_RESET)) m->progress = word(r, m->committed, r->cbs - 1);
    m->bad = 0;
    r->attempt++;
    r->dead = false;
    return m->committed + 1;
}

/* The host's loop: up to `depth` steps in flight, checkpoints now and then, recovery on an error, the next batch on a
 * NaN. */
static void train(run *r, int depth)
{
    r->checkpoint = r->m;
    int next = 1, oldest = 1;
    while (r->m.committed < STEPS) {
        while (next < oldest + depth && next <= STEPS) submit(r, next++);
        bool failed = false;
        for (int s = oldest; s < next; s++) failed |= r->error[s];
        /* The model's device is idle here: what was submitted has run or will never run. */
        if (failed) {
            next = oldest = recover(r);
        } else if (r->m.bad != 0) {
            r->m.bad = 0;
            r->m.s.skipped++;
            r->m.progress = word(r, r->m.committed, r->cbs - 1);
            r->attempt++;
            next = oldest = r->m.committed + 1;
        } else {
            if (r->m.committed < next - 1) return; /* stuck: reported as wrong parameters */
            oldest = next;
            if (r->m.committed - r->checkpoint.committed >= CHECKPOINT_EVERY) r->checkpoint = r->m;
        }
    }
}

static run start(int parts, int world, int failures, uint64_t seed)
{
    run r = {.parts = parts, .world = world, .failures_left = failures, .rng = seed};
    build(&r);
    for (int b = 0; b < BLOCKS; b++)
        for (int g = 0; g < GROUPS; g++) r.m.s.param[b][g] = mix2(1, (uint64_t)(b * GROUPS + g));
    r.m.progress = word(&r, 0, r.cbs - 1);
    return r;
}

typedef struct protocol {
    const char *name;
    int parts;
    int wrong[3]; /* expected in each world: 0 never, 1 sometimes */
} protocol;

static const protocol protocols[] = {
    {"P0 committed alone", 0, {1, 1, 1}},
    {"P1 begun and committed", BEGUN, {0, 1, 1}},
    {"P2 with the progress chain", BEGUN | CHAINED, {0, 0, 1}},
    {"P2 group over two buffers", BEGUN | CHAINED | SPLIT, {0, 0, 1}},
    {"P2 progress never reset", BEGUN | CHAINED | NO_RESET, {1, 1, 1}},
    {"P2 no barrier before end", BEGUN | CHAINED | NO_BARRIERS, {1, 1, 1}},
    {"P3 with counts a group", BEGUN | CHAINED | COUNTS, {0, 0, 0}},
    {"P3 group over two buffers", BEGUN | CHAINED | COUNTS | SPLIT, {0, 0, 0}},
};

int main(int argc, char **argv)
{
    int runs = argc > 1 ? atoi(argv[1]) : 1000, surprises = 0, depth_max = DEPTH_MAX;
    run calm = start(BEGUN | CHAINED, STOP, 0, 1);
    train(&calm, 1);
    printf("%-28s %18s %18s %18s\n", "wrong of runs", "all stops", "next buffer runs", "next launch runs");
    for (size_t p = 0; p < sizeof protocols / sizeof protocols[0]; p++) {
        printf("%-28s", protocols[p].name);
        for (int world = STOP; world <= WEAK; world++) {
            int wrong = 0, reloads = 0, replays = 0;
            for (int i = 0; i < runs; i++) {
                run r = start(protocols[p].parts, world, i % 6, (uint64_t)i * 77 + 5);
                train(&r, 1 + i % depth_max);
                wrong += memcmp(&r.m.s, &calm.m.s, sizeof r.m.s) != 0 || r.m.committed != STEPS;
                reloads += r.reloads;
                replays += r.replays;
            }
            bool surprise = (wrong != 0) != protocols[p].wrong[world] || replays == 0 ||
                            (protocols[p].parts & BEGUN && reloads == 0);
            surprises += surprise;
            printf(" %10d %s", wrong, surprise ? "SURPRISE" : wrong ? "known   " : "safe    ");
        }
        printf("\n");
    }
    return surprises != 0;
}
