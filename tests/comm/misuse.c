/* misuse.c: two ranks that use MPI wrongly, in one way a run: does the stand-in notice? It is loaded with dlopen, as anneal does; argv is
 * library and case. For Open MPI's handles. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *handle;
static int (*init)(int *, char ***, int, int *), (*finalize)(void), (*stop)(handle, int), (*rank_of)(handle, int *);
static int (*isend)(const void *, int, handle, int, int, handle, handle *);
static int (*irecv)(void *, int, handle, int, int, handle, handle *);
static int (*test)(handle *, int *, void *);
static handle world, byte_type;
static int me;
static char data[1 << 20];

static void until_done(handle *r)
{
    char status[256];
    for (int flag = 0; !flag;)
        if (test(r, &flag, status)) return;
}

/* An exchange of n bytes under a tag: sends from data, receives behind it. */
static void swap(int n, int m, int tag)
{
    handle in, out;
    irecv(data + (1 << 19), m, byte_type, !me, tag, world, &in);
    isend(data, n, byte_type, !me, tag, world, &out);
    until_done(&in);
    until_done(&out);
}

static void *tests(void *unused)
{
    handle r = *(handle *)dlsym(RTLD_DEFAULT, "ompi_request_null");
    char status[256];
    int flag;
    r = dlsym(RTLD_DEFAULT, "ompi_request_null");
    for (int i = 0; i < 20000; i++) test(&r, &flag, status);
    return unused;
}

static void swap_wrongly(const char *name)
{
    handle in, out;
    if (strcmp(name, "count") == 0) swap(me ? 40 : 44, 44, 1);
    if (strcmp(name, "order") == 0) /* rank 0 adds, then gathers; rank 1 the other way round */
        for (int i = 0; i < 2; i++) swap((i ^ me) ? 4096 : 64, (i ^ me) ? 4096 : 64, 2);
    if (strcmp(name, "written") == 0) {
        irecv(data + (1 << 19), 100000, byte_type, !me, 1, world, &in);
        isend(data, 100000, byte_type, !me, 1, world, &out);
        data[99999]++;
        until_done(&in);
        until_done(&out);
    }
    if (strcmp(name, "overlap") == 0) {
        irecv(data + 50, 100, byte_type, !me, 1, world, &in);
        isend(data, 100, byte_type, !me, 1, world, &out);
        until_done(&in);
        until_done(&out);
    }
    if (strcmp(name, "twice") == 0) {
        irecv(data + (1 << 19), 8, byte_type, !me, 1, world, &in);
        isend(data, 8, byte_type, !me, 1, world, &out);
        handle again = in;
        until_done(&in);
        until_done(&out);
        until_done(&again);
    }
    if (strcmp(name, "open") == 0) irecv(data, 8, byte_type, !me, 1, world, &in);
    if (strcmp(name, "lost") == 0) { /* nobody receives it */
        int flag;
        char status[256];
        isend(data, 8, byte_type, !me, 3, world, &out);
        for (int i = 0; i < 100; i++) test(&out, &flag, status), usleep(1000);
    }
    if (strcmp(name, "handle") == 0) {
        irecv(data + (1 << 19), 8, world, !me, 1, world, &in);
        isend(data, 8, byte_type, !me, 1, world, &out);
        until_done(&in);
        until_done(&out);
    }
    if (strcmp(name, "threads") == 0) {
        pthread_t t;
        if (pthread_create(&t, NULL, tests, NULL)) abort();
        tests(NULL);
        pthread_join(t, NULL);
    }
}

int main(int argc, char **argv)
{
    int level;
    alarm(20);
    void *lib = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (!lib) return fprintf(stderr, "%s\n", argc == 3 ? dlerror() : "misuse LIBRARY CASE"), 9;
#define FIND(name, symbol) *(void **)&name = dlsym(lib, symbol)
    FIND(init, "MPI_Init_thread"), FIND(finalize, "MPI_Finalize"), FIND(stop, "MPI_Abort");
    FIND(rank_of, "MPI_Comm_rank"), FIND(isend, "MPI_Isend"), FIND(irecv, "MPI_Irecv"), FIND(test, "MPI_Test");
    world = dlsym(lib, "ompi_mpi_comm_world");
    byte_type = dlsym(lib, "ompi_mpi_byte");
    if (strcmp(argv[2], "early") == 0) rank_of(world, &me);
    if (init(NULL, NULL, 2, &level)) return 8;
    if (strcmp(argv[2], "again") == 0) init(NULL, NULL, 2, &level);
    rank_of(world, &me);
    if (strcmp(argv[2], "exit") == 0) return 0;
    if (strcmp(argv[2], "aborted") == 0 && me == 0) {
        handle out;
        stop(world, 3);
        isend(data, 8, byte_type, 1, 1, world, &out);
        return 3;
    }
    swap_wrongly(argv[2]);
    if (strcmp(argv[2], "right") == 0) swap(300000, 300000, 1), swap(0, 0, 2);
    finalize();
    if (strcmp(argv[2], "late") == 0) rank_of(world, &me);
    return 0;
}
