/* diagnose.h: what is wrong with a run, from its own files.
 *
 * Owns:      the rules and their thresholds, one row for each rule (diagnose.c says how to add one): a symptom, evidence
 *            in the run's numbers, a hypothesis, a first fix as a command.
 * Does not:  measure anything, open a device, or print; judge the validation loss beside the training loss (overfitting).
 *
 * Invariants: a rule that lacks its figures is silent; a run of less than AN_DIAGNOSE_SECONDS of updates, or of less
 * than AN_DIAGNOSE_LINES lines of metrics, is not judged by its times. */
#ifndef AN_REPORT_DIAGNOSE_H
#define AN_REPORT_DIAGNOSE_H

#include "report/run_record.h"

enum { AN_DIAGNOSE_LINES = 20, AN_DIAGNOSE_SECONDS = 10, AN_MOST_RULES = 32 };

typedef struct an_finding {
    const char *rule, *symptom, *hypothesis;
    char evidence[520]; /* numbers, or a sentence of the logbook without control characters */
    char fix[640];      /* a command, or several that are alternatives */
} an_finding;

typedef struct an_diagnosis {
    an_finding finding[AN_MOST_RULES];
    int n;
    int judged;      /* rules that had their figures */
    char lacks[256]; /* what the others lack, "a logbook, profile="; "": nothing */
} an_diagnosis;

/* Tries every rule on the run of folder `dir`. `running`: a process trains in it now. */
an_status an_diagnose(an_err *err, const char *dir, const an_run_record *r, bool running, an_diagnosis *out);
/* The same with a profile of the run's step (anneal profile --json; NULL: none), and with a reference run of the same
 * settings that the run should be faster than (NULL: none). AN_E_DATA: it is not a profile, or of another preset. */
typedef struct an_diagnose_beside {
    const json_t *profile;
    const char *profile_path;
    const an_run_record *reference;
    const char *reference_dir;
} an_diagnose_beside;
an_status an_diagnose_beside_others(an_err *err, const char *dir, const an_run_record *r, bool running,
                                    const an_diagnose_beside *beside, an_diagnosis *out);
/* The name of rule i; NULL past the last. */
const char *an_diagnose_rule(int i);
/* [{"rule":...,"symptom":...,"evidence":...,"hypothesis":...,"fix":...},...] */
void an_diagnosis_json(const an_diagnosis *d, an_text *out);

#endif
