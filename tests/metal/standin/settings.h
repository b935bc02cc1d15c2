/* settings.h: what is simulated: the profile of a machine, how work runs, which faults come. Set by configure, read
 * everywhere. */
#ifndef STANDIN_SETTINGS_H
#define STANDIN_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum when { WHEN_LATE, WHEN_EARLY, WHEN_RANDOM } when;
typedef enum kernels { KERNELS_CHECKED, KERNELS_FAST, KERNELS_NONE } kernels;

typedef struct gpu {
    const char *key, *name, *architecture;
    int apple; /* Apple7 is 7; 0: not Apple's */
    bool unified, simdgroup_matrix, low_power;
    uint64_t offset_alignment;
    bool no_shuffles; /* within a SIMD group, nor reductions */
} gpu;

typedef enum fault_kind {
    FAULT_COMMIT,
    FAULT_HANG,
    FAULT_BUFFER,
    FAULT_QUEUE,
    FAULT_LIBRARY,
    FAULT_FUNCTION,
    FAULT_PIPELINE,
    FAULT_WARNING,
    FAULT_DEVICE,
    FAULT_COMMANDS,
    FAULT_ENCODER,
    FAULT_ENCODING,
    FAULT_KINDS
} fault_kind;
typedef enum fault_form { RAN_NOTHING, RAN_PREFIX, RAN_ALL } fault_form;

typedef struct fault {
    fault_kind kind;
    uint64_t at;
    fault_form form;
    int code; /* MTLCommandBufferError */
    bool on;  /* and all that follow */
} fault;

enum { MAX_FAULTS = 64 };
typedef struct settings {
    int macos; /* major * 100 + minor */
    const gpu *gpu;
    bool record, pools_may_lack, check_end;
    when when;
    kernels kernels;
    uint64_t seed, memory, working_set, max_buffer, launch_us, thermal, low_power;
    char cache[512], edit_from[80], edit_to[80];
    fault fault[MAX_FAULTS];
    int n_faults;
    uint64_t created[FAULT_KINDS];
} settings;

settings *the(void);
const char *settings_read(const char *text, settings *out); /* from the defaults; NULL, or what is wrong */
const char *faults_read(const char *text, settings *out);   /* adds some, joined with + */
/* Counts one event of this kind; the fault that is set for it, or NULL. */
const fault *fault_now(fault_kind kind);
uint32_t draw(uint32_t below); /* from the seed */

#endif
