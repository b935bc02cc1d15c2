/* apple_roofline.h: estimates of a step's time on Apple GPUs from public figures (a roofline model), not measurements. */
#ifndef AN_DEVICE_APPLE_ROOFLINE_H
#define AN_DEVICE_APPLE_ROOFLINE_H

#include "base/text.h"
#include "ir/plan.h"

/* A line a chip: name, GPU cores, GB/s, TFLOP/s, and what the plan's step would take there, in milliseconds. */
void an_apple_roofline_text(const an_plan *p, an_text *out);
/* Seconds that step `step` of the plan would take on the slowest chip of that table. */
double an_apple_roofline_slowest(const an_plan *p, int32_t step);

#endif
