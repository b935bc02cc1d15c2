/* issue_texts.c: see issue_texts.h. A template has one %s; subjects say nothing of the class. */
#include "io/data/issue_texts.h"
#include <stddef.h>

enum { SUBJECTS = 50, TEMPLATES = 20, A_TEMPLATE = 5 };

static const char *const subject[SUBJECTS] = {
    "the date parser",    "the login form",     "the image cache",   "the retry loop",     "the export command",
    "the search index",   "the config loader",  "the upload queue",  "the thread pool",    "the colour picker",
    "the billing module", "the audio decoder",  "the scheduler",     "the mail gateway",   "the JSON reader",
    "the undo stack",     "the session store",  "the map widget",    "the rate limiter",   "the backup job",
    "the font renderer",  "the plugin host",    "the token refresh", "the csv importer",   "the crash handler",
    "the network probe",  "the settings page",  "the video player",  "the sync client",    "the tax calculator",
    "the hash table",     "the file watcher",   "the print dialog",  "the message bus",    "the access filter",
    "the matrix product", "the theme switcher", "the zip writer",    "the proxy layer",    "the invoice view",
    "the clock driver",   "the memory pool",    "the chat window",   "the vector search",  "the sensor bridge",
    "the password reset", "the event log",      "the tree walker",   "the currency table", "the menu bar",
};

static const char *const needs_docs[TEMPLATES] = {
    "Users cannot tell from the README how to turn on %s; please explain the options.",
    "The documentation still describes the old behaviour of %s, and the screenshots in the manual are out of date.",
    "Add a short guide to the documentation, with an example that explains how %s is meant to be used.",
    "I read the documentation twice and did not find a word about %s. Could you describe it?",
    "The comment above %s is wrong; the description of its parameters should be rewritten.",
    "There is a typo in the guide's chapter about %s, and one link there is dead.",
    "Please document the default values of %s in the reference manual; the docs have them nowhere.",
    "New users ask every week what %s does: a paragraph in the README would explain it.",
    "The changelog does not mention that %s changed; document it, and explain in the guide what to do.",
    "The help text of %s lists options that no longer exist, and leaves out the new ones. Update the docs.",
    "It is unclear to readers in which units %s is configured. The documentation page should explain it.",
    "The docs lack a tutorial on %s, and the example in the manual stops half way.",
    "The README's installation section forgets %s. Explain what a reader has to install first.",
    "Could you write down what the error codes of %s mean? The manual page is silent.",
    "The docstring of %s has one line; describe its parameters and explain what is returned.",
    "The reference page for %s has a broken example: the snippet in the documentation does not compile.",
    "Explain in the user guide when to choose %s and when not to; readers guess today.",
    "Describe the file format of %s on a page of the manual; readers find no description of it today.",
    "The manual is confusing about %s: the documentation uses two names for one thing in a paragraph.",
    "Translate the guide to %s and mention it in the table of contents of the documentation.",
};
static const char *const needs_test[TEMPLATES] = {
    "The fix for %s has no regression test, so the bug may come back unseen.",
    "Coverage of %s is close to zero: add unit tests for the error paths.",
    "Nothing in the suite fails when I break %s on purpose. We need a test case that catches it.",
    "Please add a failing test for the crash in %s before anybody repairs it.",
    "The edge cases of %s, empty input and very long input, are never exercised by a test.",
    "CI is green although %s is broken: no test of the suite has an assertion on the result.",
    "Write an integration test that runs %s against a fake server, and fails when it is broken.",
    "The test for %s is flaky: it fails once in ten runs because it waits for a fixed time.",
    "The test of %s is skipped since last year. Enable this test case in the suite, or add one that passes.",
    "A fuzzer found an input that hangs %s. Keep that input as a case of the test suite.",
    "We only checked %s by hand. Please cover it with automated checks before the release.",
    "Mock the clock so that %s can be tested without sleeping; the unit tests take minutes.",
    "There are no tests at all for %s on Windows: the suite skips them. Add unit tests that CI runs.",
    "The benchmark of %s asserts nothing. Turn it into a test with a bound that can fail.",
    "Add fixtures with malformed files so that the suite exercises how %s rejects them.",
    "The coverage report shows that half of the branches of %s are never run by a unit test.",
    "Reproducing the failure of %s takes one minute by hand; make it a unit test case.",
    "Property based tests would have found this overflow in %s; add a randomised case to the suite.",
    "The expected output of %s in the test fixtures is stale, so the assertion compares nothing.",
    "Before we refactor %s, pin its behaviour with a handful of regression tests.",
};
static const char *const needs_review[TEMPLATES] = {
    "The pull request for %s is ready and waits for a second pair of eyes.",
    "Could a maintainer look at my patch to %s? It has had no feedback for two weeks.",
    "I changed the locking in %s and want a maintainer to approve the diff.",
    "Please review my design of %s before I merge the branch; feedback on the approach would help.",
    "The branch that rewrites %s is rebased; who can approve and merge it?",
    "A reviewer asked for changes in %s, I pushed them, please have another look.",
    "This patch touches security relevant code in %s and needs approval by the owners.",
    "Opened a merge request that simplifies %s; comments on the diff are welcome.",
    "Two approvals are required for %s and there is only one so far. Reviewer wanted.",
    "My proposal for %s is open for discussion: please comment on the approach before I merge.",
    "Can the owner of %s sign off on this change? The pull request is blocked by it.",
    "The diff of %s is large, so I split it in three commits; please look at the first patch.",
    "Feedback wanted on the new interface of %s: is this the design that maintainers want?",
    "The pull request about %s has merge conflicts resolved and is waiting for approval again.",
    "I am new here and this is my first patch, to %s. Would a maintainer take a look?",
    "Please double check the arithmetic in my change to %s, a second opinion would help before merging.",
    "The reviewer of %s is on holiday; could another maintainer take over and approve the branch?",
    "This commit reverts %s. It wants a careful look by a reviewer before it is merged.",
    "Draft of %s pushed to a branch. I would like feedback on the approach, not on the style.",
    "The merge of %s is held up since no reviewer was assigned; please assign one.",
};

static void put_class(an_text *out, const char *label, const char *const *text, int first)
{
    for (int t = 0; t < TEMPLATES; t++)
        for (int i = 0; i < A_TEMPLATE; i++) {
            const char *s = subject[(first + 7 * t + 11 * i) % SUBJECTS];
            an_text_puts(out, "\"");
            for (const char *c = text[t]; *c; c++) {
                if (c[0] == '%' && c[1] == 's') {
                    an_text_puts(out, s);
                    c++;
                } else {
                    an_text_putn(out, c, 1);
                }
            }
            an_text_printf(out, "\",%s,%s %d\n", label, label, t);
        }
}

void an_issue_texts_csv(an_text *out)
{
    an_text_puts(out, "text,label,group\n");
    put_class(out, "needs_docs", needs_docs, 0);
    put_class(out, "needs_test", needs_test, 3);
    put_class(out, "needs_review", needs_review, 6);
}
