/* dependencies.h: which launches of a plan must wait for which: its true dependencies, where the list of steps is one order of
 * many. For devices that can run launches side by side. */
#ifndef AN_IR_DEPENDENCIES_H
#define AN_IR_DEPENDENCIES_H

#include "ir/plan.h"

typedef struct an_dependencies {
    int32_t *first; /* [n_steps + 1]: step s waits for step[first[s]] ... step[first[s + 1] - 1] */
    int32_t *step;
    bool *last; /* [n_steps]: nobody waits for it */
} an_dependencies;

/* Step s waits for every earlier step whose memory it touches where one of them writes, by way of the steps in its
 * list: who waits for x waits for all that x waits for. scratch_used: bytes of each step's scratch that it touches,
 * from its begin; NULL: all. What is made lives in `arena`. AN_E_NOMEM. */
an_status an_dependencies_make(an_err *err, const an_plan *p, const int64_t *scratch_used, an_arena *arena,
                               an_dependencies *out);

#endif
