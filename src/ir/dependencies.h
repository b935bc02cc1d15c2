/* dependencies.h: which launches of a plan must wait for which. The list of steps is one order of many; devices that can
 * run launches side by side need only the true dependencies.
 *
 *     steps 0 writes a, 1 reads a, 2 reads a, 3 overwrites a      1 and 2 wait for 0; 3 waits for 1 and 2
 */
#ifndef AN_IR_DEPENDENCIES_H
#define AN_IR_DEPENDENCIES_H

#include "ir/plan.h"

typedef struct an_dependencies {
    int32_t *first; /* [n_steps + 1]: step s waits for step[first[s]] ... step[first[s + 1] - 1] */
    int32_t *step;
    bool *last; /* [n_steps]: no step waits for it */
} an_dependencies;

/* Step s waits for every earlier step that touches the same memory where one of the two writes. The lists are reduced: a
 * step that waits for x also waits for all that x waits for, so those are left out. scratch_used: bytes that each step
 * touches of its scratch, from its start; NULL: all. The result is allocated in `arena`. AN_E_NOMEM. */
an_status an_dependencies_make(an_err *err, const an_plan *p, const int64_t *scratch_used, an_arena *arena,
                               an_dependencies *out);

#endif
