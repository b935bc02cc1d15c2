/* relay.c: a bad network between processes of one machine that connect by TCP. Built twice.
 *
 * With -DSHIM, a library for LD_PRELOAD: a connection to a port from RELAY_FIRST to RELAY_LAST goes to the relay at RELAY_PORT, with the
 * address that was meant in its first bytes. Without, the relay: `relay PORT_FILE MODE_FILE` writes its port into the one file, and
 * passes bytes on in the manner that the first word of the other says, which is read again and again:
 *     pass                  at once
 *     delay MS JITTER_MS    each piece after MS and up to JITTER_MS more, in order
 *     stall                 nothing moves, nothing is lost
 *     half                  nothing moves any more from the side that was connected to
 *     reset                 connections end with RST, those that are made later too
 * It ends when its parent does. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef SHIM
#include <dlfcn.h>
#include <fcntl.h>

__attribute__((visibility("default"))) int connect(int fd, const struct sockaddr *to, socklen_t n)
{
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "connect");
    const struct sockaddr_in *in = (const void *)to;
    const char *first = getenv("RELAY_FIRST"), *last = getenv("RELAY_LAST"), *port = getenv("RELAY_PORT");
    if (!first || !last || !port || to->sa_family != AF_INET || ntohs(in->sin_port) < atoi(first) ||
        ntohs(in->sin_port) > atoi(last))
        return real(fd, to, n);
    const struct sockaddr_in relay = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    int code = real(fd, (const void *)&relay, sizeof relay);
    if (code == 0 && send(fd, in, sizeof *in, MSG_NOSIGNAL) != (ssize_t)sizeof *in) code = -1;
    fcntl(fd, F_SETFL, flags);
    return code;
}
#else
#include <errno.h>
#include <poll.h>
#include <time.h>

enum { LINKS = 256, PIECES = 64, PIECE = 65536 };

typedef struct piece {
    double due;
    size_t n, at;
    char bytes[PIECE];
} piece;

/* One direction of a connection: what was read and is not yet written. */
typedef struct way {
    piece *queue[PIECES];
    int first, n, ended;
} way;

typedef struct link {
    int fd[2];  /* the side that connects, the side that it meant; -1: closed */
    way way[2]; /* from fd[0] to fd[1], and back */
} link_;

static link_ links[LINKS];
static char mode[16] = "pass";
static double delay_ms, jitter_ms;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void read_mode(const char *path)
{
    FILE *f = fopen(path, "r");
    char word[16];
    double a = 0, b = 0;
    if (!f) return;
    if (fscanf(f, "%15s %lf %lf", word, &a, &b) >= 1) strcpy(mode, word), delay_ms = a, jitter_ms = b;
    fclose(f);
}

static void end_link(link_ *l, int reset)
{
    for (int side = 0; side < 2; side++) {
        if (l->fd[side] < 0) continue;
        if (reset) setsockopt(l->fd[side], SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        close(l->fd[side]);
        l->fd[side] = -1;
        while (l->way[side].n) free(l->way[side].queue[l->way[side].first++ % PIECES]), l->way[side].n--;
        l->way[side] = (way){0};
    }
}

static void accept_one(int listener)
{
    struct sockaddr_in to;
    const int from = accept(listener, NULL, NULL);
    if (from < 0) return;
    int out = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < LINKS && out >= 0; i++) {
        if (links[i].fd[0] >= 0 || links[i].fd[1] >= 0) continue;
        if (recv(from, &to, sizeof to, MSG_WAITALL) == (ssize_t)sizeof to &&
            connect(out, (void *)&to, sizeof to) == 0) {
            links[i].fd[0] = from;
            links[i].fd[1] = out;
            return;
        }
        break;
    }
    close(from);
    if (out >= 0) close(out);
}

/* Reads what has come from side `s`; a side that has ended is told to the other when all before is written. */
static void take(link_ *l, int s)
{
    way *w = &l->way[s];
    piece *p = w->n < PIECES ? malloc(sizeof *p) : NULL;
    if (!p) return;
    const ssize_t n = recv(l->fd[s], p->bytes, PIECE, MSG_DONTWAIT);
    if (n <= 0) {
        free(p);
        if (n == 0)
            w->ended = 1;
        else if (errno != EAGAIN && errno != EINTR)
            end_link(l, 1);
        return;
    }
    const double after = w->n ? w->queue[(w->first + w->n - 1) % PIECES]->due : 0,
                 due = now() + delay_ms + jitter_ms * ((double)rand() / RAND_MAX);
    p->due = due > after ? due : after;
    p->n = (size_t)n;
    p->at = 0;
    w->queue[(w->first + w->n++) % PIECES] = p;
}

static void give(link_ *l, int s)
{
    way *w = &l->way[s];
    while (w->n && w->queue[w->first % PIECES]->due <= now()) {
        piece *p = w->queue[w->first % PIECES];
        const ssize_t n = send(l->fd[!s], p->bytes + p->at, p->n - p->at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            end_link(l, 1);
            return;
        }
        if (n <= 0) return;
        p->at += (size_t)n;
        if (p->at < p->n) return;
        free(p);
        w->first = (w->first + 1) % PIECES;
        w->n--;
    }
    if (w->ended == 1 && !w->n) shutdown(l->fd[!s], SHUT_WR), w->ended = 2;
    if (l->way[0].ended == 2 && l->way[1].ended == 2) end_link(l, 0);
}

static int listen_somewhere(const char *port_file)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (void *)&at, sizeof at) || listen(listener, 64) ||
        getsockname(listener, (void *)&at, &n))
        return -1;
    FILE *f = fopen(port_file, "w");
    if (!f) return -1;
    fprintf(f, "%d\n", ntohs(at.sin_port));
    fclose(f);
    return listener;
}

static void move_all(void)
{
    for (int i = 0; i < LINKS; i++)
        for (int s = 0; s < 2; s++) {
            if (links[i].fd[0] < 0) continue;
            if (s == 1 && strcmp(mode, "half") == 0) continue;
            if (!links[i].way[s].ended) take(&links[i], s);
            if (links[i].fd[0] >= 0) give(&links[i], s);
        }
}

int main(int argc, char **argv)
{
    const int listener = argc == 3 ? listen_somewhere(argv[1]) : -1;
    const pid_t parent = getppid();
    struct pollfd polled[2 * LINKS + 1];
    if (listener < 0) return fprintf(stderr, "relay PORT_FILE MODE_FILE\n"), 1;
    for (int i = 0; i < LINKS; i++) links[i].fd[0] = links[i].fd[1] = -1;
    while (getppid() == parent) {
        int n = 0;
        read_mode(argv[2]);
        polled[n++] = (struct pollfd){.fd = listener, .events = POLLIN};
        const int stalls = strcmp(mode, "stall") == 0, resets = strcmp(mode, "reset") == 0;
        for (int i = 0; i < LINKS && !stalls; i++)
            for (int s = 0; s < 2; s++)
                if (links[i].fd[s] >= 0 && !links[i].way[s].ended && links[i].way[s].n < PIECES &&
                    !(s == 1 && strcmp(mode, "half") == 0))
                    polled[n++] = (struct pollfd){.fd = links[i].fd[s], .events = POLLIN};
        poll(polled, (nfds_t)n, 1);
        if (polled[0].revents) accept_one(listener);
        if (resets)
            for (int i = 0; i < LINKS; i++) end_link(&links[i], 1);
        if (!stalls) move_all();
    }
    return 0;
}
#endif
