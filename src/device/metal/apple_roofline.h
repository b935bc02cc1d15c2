/* apple_roofline.h: how long a step would take on Macs one has not got: an estimate from public figures, never a measurement. */
#ifndef AN_DEVICE_METAL_APPLE_ROOFLINE_H
#define AN_DEVICE_METAL_APPLE_ROOFLINE_H

#include "base/text.h"
#include "ir/plan.h"

/* A line a chip: name, GPU cores, GB/s, TFLOP/s, and what the plan's step would take there, in milliseconds. */
void an_apple_roofline_text(const an_plan *p, an_text *out);

#endif
