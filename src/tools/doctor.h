/* doctor.h: the diagnosis of `anneal doctor`: the machine, the devices, the compiler and its cache, measured speeds,
 * and what is wrong with them.
 *
 * Owns:      which findings are faults (something does not run, or not as it should) and which are hints (it runs, but
 *            a figure measured now would mislead).
 * Does not:  print. A fault is a finding, not an error.
 */
#ifndef AN_TOOLS_DOCTOR_H
#define AN_TOOLS_DOCTOR_H

#include "tools/bench_op.h"
#include "platform/system_info.h"
#include <anneal_tools.h>

enum { AN_DOCTOR_DEVICES = 16, AN_DOCTOR_FINDINGS = 24, AN_DOCTOR_LINKS = 24, AN_DOCTOR_SETS = 8 };

typedef struct an_measured_isa {
    char name[16];
    double f32_gflops, bf16_gflops; /* of one core's multiply-adds in registers */
    bool taken;                     /* where no isa= is given */
} an_measured_isa;

typedef struct an_measured { /* on one device; zeros: not measured */
    double gemm_gflops, gemm_bf16_gflops, copy_gbytes;
    int64_t gemm_side;                   /* of the timed GEMMs */
    an_measured_isa isa[AN_DOCTOR_SETS]; /* of a processor */
    int n_isas;
    uint64_t device_bytes, driver_bytes; /* of a GPU: free for programs; held by driver and libraries after a GEMM */
    char fault[512];                     /* why the device does not run; "" */
} an_measured;

typedef struct an_doctor_finding {
    bool fault; /* false: a hint */
    char text[400];
} an_doctor_finding;

typedef struct an_doctor_link {
    char what[32], found[300]; /* "GPU 0", "NCCL", "network" */
    bool fault;                /* without it ranks do not train on these devices */
} an_doctor_link;

typedef struct an_doctor {
    an_system_info os;
    an_mount_info cache_mount, here;
    an_compiler_facts cc;
    an_device_facts device[AN_DOCTOR_DEVICES];
    an_measured measured[AN_DOCTOR_DEVICES];
    an_doctor_link link[AN_DOCTOR_LINKS]; /* what carries exchanges between ranks */
    int n_devices, n_findings, n_links;
    an_doctor_finding finding[AN_DOCTOR_FINDINGS];
} an_doctor;

typedef struct an_doctor_options {
    const char *device; /* the only one to measure, NULL: each that runs */
    const char *cc, *cache_dir;
    bool measure;
} an_doctor_options;

/* AN_E_USAGE when the device of the options does not exist; else AN_OK whatever is found. */
an_status an_doctor_examine(an_err *err, const an_doctor_options *o, an_doctor *out);

/* Fills finding[] from the facts in `d`. Part of an_doctor_examine; declared for tests. */
void an_doctor_judge(an_doctor *d);
bool an_doctor_faulty(const an_doctor *d);

#endif
