/* interrupt.c: Ctrl-C and signals (SIGINT, SIGTERM, SIGHUP, a batch system's warnings, SIGXFSZ). The first sets a flag
 * that loops ask for, and ends the compilers that are running; the second has the system's default action, but for a
 * warning, which may come again while the run saves. What an interrupted run does: train/loop.c, asked through
 * wants_stop of cmd_train.c. */
#define _DEFAULT_SOURCE
#include "cli/cli.h"
#include "platform/platform.h"
#include <signal.h>

static volatile sig_atomic_t interrupted;

static void on_signal(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
    an_interrupt_children(); /* a hanging compiler would delay the next check of the flag */
}

/* The default action of a signal, also for the compilers that are running. */
static void on_early_signal(int signal_number)
{
    an_interrupt_children();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void catch_ends_with(void (*handler)(int))
{
    static const struct {
        int number;
        bool asked, repeats; /* may be ignored from without (nohup); comes again by itself */
    } ends[] = {
        {SIGINT, false, false}, {SIGTERM, false, false}, {SIGHUP, true, false},
        {SIGUSR1, true, true}, /* batch systems warn with these before they kill (Slurm's --signal, -notify) */
        {SIGUSR2, true, true},  {SIGXCPU, true, true}}; /* every second once the soft limit of processor time is reached */
    for (size_t i = 0; i < AN_COUNT(ends); i++) {
        struct sigaction was, action = {.sa_handler = handler, .sa_flags = SA_RESTART};
        if (!ends[i].repeats || handler == on_early_signal) action.sa_flags |= SA_RESETHAND;
        sigemptyset(&action.sa_mask);
        sigaction(ends[i].number, NULL, &was);
        if (!ends[i].asked || was.sa_handler != SIG_IGN) sigaction(ends[i].number, &action, NULL);
    }
}

void an_signals_begin(void)
{
    an_guard_maps();
    signal(SIGXFSZ, SIG_IGN); /* exceeding a file size limit becomes an error, not a signal */
    catch_ends_with(on_early_signal);
}

void an_interrupt_catch(void)
{
    catch_ends_with(on_signal);
}

bool an_interrupt_seen(void *unused)
{
    (void)unused;
    return interrupted != 0;
}
