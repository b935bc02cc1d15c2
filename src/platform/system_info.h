/* system_info.h: facts about this machine that need no root rights: for `anneal doctor`, a run's logbook, and warnings.
 *
 * Owns:      the reading of /proc, /sys and cgroups on Linux and of what sysctl, pmset, sw_vers and xcode-select say on
 *            macOS. All of it is compiled everywhere and takes a root folder or texts, which tests give.
 * Does not:  fail. An unknown fact is "" in a text, 0 in an amount and AN_UNKNOWN in the rest.
 */
#ifndef AN_PLATFORM_SYSTEM_INFO_H
#define AN_PLATFORM_SYSTEM_INFO_H

#include "base/base.h"
#include "base/text.h"

enum { AN_UNKNOWN = -1 }; /* beside 0, no, and 1, yes; or of a number that may be 0 */

typedef struct an_system_info {
    char system[128];    /* "Debian GNU/Linux 12 (bookworm)", "macOS 14.5 (23F79)" */
    char kernel[160];    /* "Linux 6.1.0", "Darwin 23.5.0" */
    char machine[32];    /* "x86_64", "arm64": what this program was built for */
    char cpu[128];       /* "AMD EPYC 9454", "Apple M2 Pro" */
    char features[512];  /* of those a kernel of ours may use: "avx2 fma f16c" */
    char translated[32]; /* what runs this program's instructions for the processor: "Rosetta 2", "qemu"; "": native */
    char container[32];  /* "docker", "podman", "lxc", "kubernetes", "cgroup namespace"; "": none is seen */
    char hypervisor[32]; /* "kvm", "apple"; "": none is seen */
    char developer[256]; /* macOS: folder of the command-line tools */
    char thermal[32];    /* "nominal"; "limited to 60 %"; "throttled 12 times" */
    char governor[32];   /* Linux: the frequency governor of the first core */
    int cores, cores_fast, cores_slow; /* physical; performance and efficiency cores where there are two kinds */
    int threads;                       /* logical processors of the machine */
    int cores_usable;                  /* after affinity and cgroup: an_cores_available */
    uint64_t l1d_bytes, l2_bytes, l3_bytes, line_bytes;
    uint64_t ram_bytes, free_bytes; /* of the machine; what new programs could have now */
    uint64_t swap_bytes, swap_free_bytes;
    uint64_t cgroup_bytes; /* memory limit; 0: none */
    double cgroup_cores;   /* 0: none */
    /* ulimit -v -d -l -f and -n; 0: none */
    uint64_t limit_address_bytes, limit_data_bytes, limit_lock_bytes, limit_file_bytes;
    uint64_t limit_files;
    int on_battery;      /* 1: running from it, 0: mains, AN_UNKNOWN: no battery seen or not told */
    int battery_percent; /* AN_UNKNOWN: no battery */
    int low_power;       /* low-power mode (macOS), power-saver platform profile (Linux) */
    int64_t throttled;   /* Linux: how often the processor was slowed for its heat since the start; AN_UNKNOWN */
    double memory_stall; /* Linux: percent of the last 10 s in which a process waited for memory; AN_UNKNOWN */
} an_system_info;

/* Of this machine now; some milliseconds on Linux, some tens on macOS, which is asked by running its tools. */
void an_system_info_read(an_system_info *out);
/* Reads again what moves while a program runs: free memory, swap, heat, power. The rest stays. */
void an_system_info_update(an_system_info *io);
/* {"system":"...",...}: every fact; unknown ones are null. */
void an_system_info_json(const an_system_info *f, an_text *out);

/* The mount that holds `path` (or its nearest parent that exists). */
typedef struct an_mount_info {
    char type[64];    /* "ext4", "nfs4", "fuse.sshfs", "apfs"; "": unknown */
    char folder[512]; /* where it is mounted */
    bool network;     /* the type is one that goes over a network, or through a virtual machine's share */
    bool read_only;
} an_mount_info;
void an_mount_info_read(const char *path, an_mount_info *out);

/* Raises this process' limit of its stack as far as may be useful; AN_E_ENV where it stays too small for what is called. */
an_status an_enough_stack(an_err *err);

/* ---- readers, for tests */

/* Facts from `root`/proc, `root`/sys and `root`/etc ("" for the real ones); leaves what it does not find. */
void an_system_info_linux(const char *root, an_system_info *out);
/* The part of it that an_system_info_update reads. */
void an_system_info_linux_moving(const char *root, an_system_info *out);

/* What macOS' programs printed; NULL: did not run. */
typedef struct an_mac_texts {
    const char *sysctl;       /* sysctl hw machdep.cpu vm.swapusage kern.hv_vmm_present kern.memorystatus_level */
    const char *translated;   /* sysctl sysctl.proc_translated, which Intel Macs do not have */
    const char *pmset;        /* pmset -g */
    const char *pmset_batt;   /* pmset -g batt */
    const char *pmset_therm;  /* pmset -g therm */
    const char *sw_vers;      /* sw_vers */
    const char *xcode_select; /* xcode-select -p */
} an_mac_texts;
void an_system_info_macos(const an_mac_texts *t, an_system_info *out);

/* The line of /proc/self/mountinfo that holds the absolute `path`. */
void an_system_info_mount(const char *mountinfo, const char *path, an_mount_info *out);

#endif
