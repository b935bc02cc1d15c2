/* dependencies.h: which steps of a plan must wait for which. The plan's list of steps is one valid order among many;
 * devices that can run launches side by side need only the true dependencies.
 *
 *     step 0 writes a
 *     step 1 reads a          waits for 0
 *     step 2 reads a          waits for 0
 *     step 3 overwrites a     waits for 1 and 2
 */
#ifndef AN_IR_DEPENDENCIES_H
#define AN_IR_DEPENDENCIES_H

#include "ir/plan.h"

typedef struct an_dependencies {
    int32_t *first; /* [n_steps + 1]: step s waits for step[first[s]] ... step[first[s + 1] - 1] */
    int32_t *step;
    bool *last; /* [n_steps]: no step waits for this one */
} an_dependencies;

/* Step s waits for every earlier step that touches the same memory where one of the two writes. The lists are
 * transitively reduced: a step that waits for x does not list what x already waits for. scratch_used: bytes that each step
 * touches of its scratch, from its start; NULL: all. The result is allocated in `arena`. AN_E_NOMEM. */
an_status an_dependencies_make(an_err *err, const an_plan *p, const int64_t *scratch_used, an_arena *arena,
                               an_dependencies *out);

#endif
