/* system_info_mac.c: parses the output of macOS' own programs. Compiled and tested on every system, as it only
 * reads texts.
 *
 * Owns:      the output formats of sysctl, pmset, sw_vers and xcode-select (macOS 13 to 26; names from their manual
 *            pages).
 * Does not:  run them (system_info.c), or fail: a missing line leaves the fact unknown.
 */
#include "platform/system_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies the value of the first line "KEY: VALUE" or "KEY = VALUE" to `out`; NULL: there is none. */
static const char *value_of(const char *text, const char *key, char *out, size_t cap)
{
    size_t n = strlen(key);
    for (const char *line = text; line != NULL && *line; line = strchr(line, '\n'), line += line != NULL) {
        while (*line == ' ' || *line == '\t') line++;
        if (strncmp(line, key, n) != 0 || strchr(" \t:=", line[n]) == NULL || line[n] == '\0') continue;
        const char *at = line + n;
        while (*at && strchr(" \t:=", *at) != NULL) at++;
        snprintf(out, cap, "%.*s", (int)strcspn(at, "\n"), at);
        return out;
    }
    return NULL;
}

static uint64_t amount(const char *text, const char *key)
{
    char value[64];
    return value_of(text, key, value, sizeof value) ? strtoull(value, NULL, 10) : 0;
}

/* "total = 2048.00M  used = 1055.00M  free = 993.00M  (encrypted)" */
static uint64_t swap_amount(const char *usage, const char *word)
{
    const char *at = strstr(usage, word);
    double mib = 0;
    if (at == NULL || sscanf(at + strlen(word), " = %lfM", &mib) != 1) return 0;
    return (uint64_t)(mib * 1048576);
}

static void features(const char *sysctl, an_system_info *out)
{
    static const struct {
        const char *key, *name;
    } used[] = {{"hw.optional.avx2_0", "avx2"},        {"hw.optional.fma", "fma"},
                {"hw.optional.f16c", "f16c"},          {"hw.optional.avx512f", "avx512f"},
                {"hw.optional.neon", "neon"},          {"hw.optional.arm.FEAT_FP16", "fp16"},
                {"hw.optional.arm.FEAT_BF16", "bf16"}, {"hw.optional.arm.FEAT_I8MM", "i8mm"},
                {"hw.optional.arm.FEAT_SME", "sme"},   {"hw.optional.amx_version", "amx"}};
    size_t n = 0;
    for (size_t i = 0; i < AN_COUNT(used); i++)
        if (amount(sysctl, used[i].key) != 0 && n + 12 < sizeof out->features)
            n += (size_t)snprintf(out->features + n, sizeof out->features - n, "%s%s", n ? " " : "", used[i].name);
}

static void from_sysctl(const char *s, an_system_info *out)
{
    char text[256];
    value_of(s, "machdep.cpu.brand_string", out->cpu, sizeof out->cpu);
    features(s, out);
    out->cores = (int)amount(s, "hw.physicalcpu");
    out->threads = (int)amount(s, "hw.logicalcpu");
    if (amount(s, "hw.nperflevels") > 1) {
        out->cores_fast = (int)amount(s, "hw.perflevel0.physicalcpu");
        out->cores_slow = (int)amount(s, "hw.perflevel1.physicalcpu");
    }
    /* The caches of the fast cores where there are two kinds: hw.l1dcachesize is that of the slow ones. */
    uint64_t fast = amount(s, "hw.perflevel0.l1dcachesize");
    out->l1d_bytes = fast ? fast : amount(s, "hw.l1dcachesize");
    fast = amount(s, "hw.perflevel0.l2cachesize");
    out->l2_bytes = fast ? fast : amount(s, "hw.l2cachesize");
    out->l3_bytes = amount(s, "hw.l3cachesize");
    out->line_bytes = amount(s, "hw.cachelinesize");
    out->ram_bytes = amount(s, "hw.memsize");
    uint64_t free_percent = amount(s, "kern.memorystatus_level");
    if (free_percent <= 100) out->free_bytes = out->ram_bytes / 100 * free_percent;
    if (value_of(s, "vm.swapusage", text, sizeof text)) {
        out->swap_bytes = swap_amount(text, "total");
        out->swap_free_bytes = swap_amount(text, "free");
    }
    if (amount(s, "kern.hv_vmm_present")) snprintf(out->hypervisor, sizeof out->hypervisor, "apple");
}

/* "Now drawing from 'Battery Power'" and "-InternalBattery-0 (id=1)  83%; discharging; 4:02 remaining present: true" */
static void from_batteries(const char *s, an_system_info *out)
{
    if (strstr(s, "'Battery Power'") != NULL) out->on_battery = 1;
    if (strstr(s, "'AC Power'") != NULL) out->on_battery = 0;
    if (strstr(s, "'UPS Power'") != NULL) out->on_battery = 1;
    const char *battery = strstr(s, "InternalBattery"), *percent = battery ? strchr(battery, '%') : NULL;
    if (percent == NULL || percent > battery + strcspn(battery, "\n")) return;
    while (percent > battery && percent[-1] >= '0' && percent[-1] <= '9') percent--;
    out->battery_percent = atoi(percent);
}

/* "CPU_Speed_Limit = 100" on Intel; on Apple silicon warning levels, or notes that none was recorded. */
static void from_thermal(const char *s, an_system_info *out)
{
    char value[64];
    if (value_of(s, "CPU_Speed_Limit", value, sizeof value) && atoi(value) < 100)
        snprintf(out->thermal, sizeof out->thermal, "limited to %d %%", atoi(value));
    else if (value_of(s, "ThermalWarningLevel", value, sizeof value) && atoi(value) > 0)
        snprintf(out->thermal, sizeof out->thermal, "warning level %d", atoi(value));
    else if (strstr(s, "No thermal warning level") != NULL || strstr(s, "CPU_Speed_Limit") != NULL)
        snprintf(out->thermal, sizeof out->thermal, "nominal");
}

void an_system_info_macos(const an_mac_texts *t, an_system_info *out)
{
    char name[40] = "macOS", version[40], build[32];
    if (t->sysctl) from_sysctl(t->sysctl, out);
    if (t->translated && amount(t->translated, "sysctl.proc_translated"))
        snprintf(out->translated, sizeof out->translated, "Rosetta 2");
    if (t->pmset && value_of(t->pmset, "lowpowermode", version, sizeof version)) out->low_power = version[0] == '1';
    if (t->pmset && value_of(t->pmset, "powermode", version, sizeof version)) out->low_power = version[0] == '1';
    if (t->pmset_batt) from_batteries(t->pmset_batt, out);
    if (t->pmset_therm) from_thermal(t->pmset_therm, out);
    if (t->sw_vers && value_of(t->sw_vers, "ProductVersion", version, sizeof version)) {
        value_of(t->sw_vers, "ProductName", name, sizeof name);
        bool has_build = value_of(t->sw_vers, "BuildVersion", build, sizeof build) != NULL;
        snprintf(out->system, sizeof out->system, has_build ? "%s %s (%s)" : "%s %s", name, version, build);
    }
    if (t->xcode_select && t->xcode_select[0] == '/')
        snprintf(out->developer, sizeof out->developer, "%.*s", (int)AN_MIN(strcspn(t->xcode_select, "\n"), 255),
                 t->xcode_select);
}
