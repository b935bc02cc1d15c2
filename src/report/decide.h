/* decide.h: where to train, from runs on several lanes (a processor, a GPU, another machine): the first run is the
 * reference, the others are compared with it.
 *
 * Owns:      the rules, their limits as settings, the verdict.
 * Does not:  measure, print, or open a device.
 *
 * Invariants: lanes share one input bucket: a setting that changes what an update computes is the same in all of them.
 * Figures are of a window of updates that leaves out the first tenth; the result says which. A rule that lacks its
 * figures does not fire. */
#ifndef AN_REPORT_DECIDE_H
#define AN_REPORT_DECIDE_H

#include "io/config/config.h"
#include "report/run_record.h"

enum { AN_DECIDE_LANES = 8, AN_DECIDE_LINES = 10 };

typedef struct an_decide_limits {
    double gain;      /* of the time of an update over the reference's: 1 - t / t_reference */
    double busy;      /* share of the time in which the GPU works */
    double growth;    /* largest growth of memory over `epochs`, as a share */
    double epochs;    /* growth is judged within so many of the first epochs */
    double tolerance; /* largest relative difference of a loss from the reference's */
} an_decide_limits;
extern const an_config an_decide_limit_keys;
/* The same rows for a command's own table. */
/* clang-format off */
#define AN_DECIDE_LIMIT_FIELDS(type, member)                                                                           \
    {"gain", AN_CONFIG_FLOAT, offsetof(type, member.gain), "0.22", 0, 1, NULL,                                         \
     "an update must be faster than the reference's by this share, where the GPU is idle"},                            \
    {"busy", AN_CONFIG_FLOAT, offsetof(type, member.busy), "0.18", 0, 1, NULL,                                         \
     "share of the time from which a GPU counts as busy"},                                                             \
    {"growth", AN_CONFIG_FLOAT, offsetof(type, member.growth), "0.26", 0, 1e6, NULL,                                   \
     "largest growth of memory over the epochs"},                                                                      \
    {"epochs", AN_CONFIG_FLOAT, offsetof(type, member.epochs), "10", 0, 1e9, NULL,                                     \
     "growth is judged within so many first epochs"},                                                                  \
    {"tolerance", AN_CONFIG_FLOAT, offsetof(type, member.tolerance), "1e-6", 0, 1e9, NULL,                             \
     "largest relative difference of a loss from the reference run's"}
/* clang-format on */

typedef enum an_decide_rule { AN_DECIDE_DRIFT, AN_DECIDE_MEMORY, AN_DECIDE_DATA, AN_DECIDE_RULES } an_decide_rule;

typedef struct an_decide_lane {
    char device[64], host[64], dtype[AN_RUN_SETTING_BYTES];
    double ms, units_per_s, busy; /* medians of the window; NaN: unknown */
    double
        cpu_wait; /* share of the time of the window's updates, waiting for a processor that others used; NaN: unknown */
    double gain;  /* NaN of the reference */
    double growth;       /* of `growing` */
    const char *growing; /* "live bytes", "resident bytes" */
    char owner[320];     /* which scopes or heap grew (report/memory_growth.h); "": nothing grew */
    double drift;        /* NaN: not comparable */
    int64_t drift_step;
    int64_t first_step, last_step;  /* the window of ms, units_per_s and busy */
    double first_epoch, last_epoch; /* the same; NaN: unknown */
    double growth_epochs;           /* over how many epochs growth was judged; NaN: unknown */
    bool accepted;                  /* its logbook has a signed acceptance of this difference */
    bool ended;                     /* its logbook has an end; false: it was killed, or still trains */
    bool fired[AN_DECIDE_RULES];
} an_decide_lane;

typedef enum an_decide_verdict {
    AN_DECIDE_TRAIN,          /* on lane `on` */
    AN_DECIDE_DATA_FIRST,     /* data and batch first: the GPU has little to do */
    AN_DECIDE_RETAINED,       /* memory grows from update to update: find what is kept; until then a host of its own */
    AN_DECIDE_OTHER_HARDWARE, /* its numbers drift: for preprocessing only, another GPU, or formally accepted */
} an_decide_verdict;

typedef struct an_decision {
    an_decide_lane lane[AN_DECIDE_LANES];
    int n;
    an_decide_verdict verdict;
    int on; /* the lane that the verdict is about */
} an_decision;

/* `dir`: names of the runs for sentences. AN_E_USAGE: too few or many lanes, or they differ in what an update computes;
 * AN_E_DATA: a run failed, or has fewer than AN_DECIDE_LINES lines of metrics. */
an_status an_decide(an_err *err, const an_run_record *run, const char *const *dir, int n,
                    const an_decide_limits *limits, an_decision *out);
const char *an_decide_rule_name(an_decide_rule rule);
const char *an_decide_verdict_name(an_decide_verdict v);
/* The two numbers of a rule on a lane: what was found and its limit, and whether the rule has its figures. */
bool an_decide_numbers(const an_decide_lane *lane, const an_decide_limits *limits, an_decide_rule rule, double *found,
                       double *limit);
void an_decide_json(const an_decision *d, const an_decide_limits *limits, an_text *out);

#endif
