/* decide_lanes.h: the lanes of a decision: runs that are there, packs of others, or runs that are trained for it on
 * each device of this machine.
 *
 * Owns:      training and reading them; what is left out, with the reason.
 * Does not:  judge (report/decide.h) or print a verdict. */
#ifndef AN_CLI_DECIDE_LANES_H
#define AN_CLI_DECIDE_LANES_H

#include "cli/cli.h"
#include "report/decide.h"

typedef struct an_lane_values {
    int64_t steps;
    char out[AN_CONFIG_TEXT_BYTES];
} an_lane_values;

enum { AN_LANES_LEFT_OUT = 16 };
typedef struct an_lanes {
    an_run_record run[AN_DECIDE_LANES];
    const char *name[AN_DECIDE_LANES]; /* folder or pack */
    char path[AN_DECIDE_LANES][AN_CKPT_PATH_BYTES];
    int n;
    struct {
        char name[32], why[256];
    } left_out[AN_LANES_LEFT_OUT];
    int n_left_out;
    struct {       /* MLX: its time alone; n = 0: not timed */
        int n;     /* updates timed, the first tenth (and the first two) left out */
        double ms; /* median of an update */
        char on[128];
    } mlx;
} an_lanes;
void an_lanes_free(an_lanes *l);

/* Whether the one word is no run and no pack, and so a preset or a file of settings. */
bool an_lanes_are_measured(const an_args *args);
/* Trains `steps` updates on the CPU, which is the reference, then on each other device that runs here, in folders of
 * their own in `out`; one that already has a complete run of these settings and this program is not trained again. MLX,
 * where its Python package is installed, is timed each time. `keys` and `values` are the command's own. */
an_status an_lanes_measure(an_err *err, const an_args *args, const an_config *keys, void *values,
                           const an_lane_values *v, an_lanes *out, bool *interrupted);
/* Reads the history of each word: a run's folder, or a pack (anneal pack), of which nothing else is read. AN_E_USAGE:
 * one of them twice. */
an_status an_lanes_read(an_err *err, const an_args *args, const an_config *keys, void *values, an_lanes *out);

#endif
