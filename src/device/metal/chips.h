/* chips.h: how long a step would take on Macs one has not got: an estimate from public figures, never a measurement. */
#ifndef AN_METAL_CHIPS_H
#define AN_METAL_CHIPS_H

#include "base/text.h"
#include "kernel/plan.h"

/* A line a chip: name, GPU cores, GB/s, TFLOP/s, and what the plan's step would take there, in milliseconds. */
void an_chips_text(const an_plan *p, an_text *out);

#endif
