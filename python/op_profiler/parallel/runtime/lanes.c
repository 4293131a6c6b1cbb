/* Lanes: one thread a core, each walking through its table of kernel calls; see lanes.py.
 *
 * A lane waits for the signals that a step needs, calls the step's kernel through TVM's C interface, and gives its signals.
 * A kernel with parallel loops hands them to `lanes_launch`, which stands in for TVM's thread pool: the parts go to the
 * lanes of the step's other cores, which wait meanwhile and take them from their mailbox. So no core ever has two
 * threads that want it, and changing the number of threads from one step to the next costs nothing.
 *
 * A signal holds the number of the last run in which it was given, so that nothing has to be reset between runs. Each
 * lies on a cache line of its own: who looks at one is not disturbed when another one is given.
 * Waiting spins, then gives the core away between looks, then sleeps until whoever gives the signal wakes the lane. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 64, MESSAGE = 512, SPINS = 2000, YIELDS = 4000, SYNC_STRIDE = 16, MOST_TASKS = 256 };

typedef struct {
    void *sync_handle;
    int32_t num_task;
} Group;
typedef int (*Lambda)(int task, Group *group, void *data);

typedef struct {
    void *function, *values, *codes, *result, *result_code;
    int64_t count;
    int64_t first_wait, waits, first_post, posts; /* in `waits` and `posts` of the lane */
    int64_t first_mate, mates;                    /* in `mates` of the lane: lanes that take parts of the kernel */
    int64_t first_loop, loops;                    /* in `loops` of the lane: how its parallel loops are cut */
    int64_t start_ns, end_ns, cpu, threads;       /* of the last run */
} Step;

/* TVM's C interface, which is loaded before this library: that of tvm/ffi/c_api.h from 0.25 on, before it that of
 * runtime/c_runtime_api.h. What a message says holds until the next failure of the thread. */
#ifdef TVM_FFI
typedef struct {
    const char *data;
    size_t size;
} Bytes;
typedef struct { /* TVMFFIObject and the beginning of TVMFFIErrorCell */
    uint64_t references;
    int32_t type;
    uint32_t padding;
    int64_t deleter;
    Bytes kind, message;
} Error;
int TVMFFIFunctionCall(void *function, void *arguments, int32_t count, void *result);
void TVMFFIErrorMoveFromRaised(void **error);
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
int TVMFFIObjectDecRef(void *object);

static int call(const Step *step) {
    return TVMFFIFunctionCall(step->function, step->values, (int32_t)step->count, step->result);
}

static void keep_error(char *message) {
    void *raised = NULL;
    TVMFFIErrorMoveFromRaised(&raised);
    if (raised == NULL) return;
    const Bytes *said = &((const Error *)raised)->message;
    size_t size = said->size < MESSAGE - 1 ? said->size : MESSAGE - 1;
    memcpy(message, said->data, size);
    message[size] = 0;
    TVMFFIObjectDecRef(raised);
}

static void raise_error(const char *message) { TVMFFIErrorSetRaisedFromCStr("RuntimeError", message); }
#else
int TVMFuncCall(void *function, void *values, int *codes, int count, void *result, int *result_code);
const char *TVMGetLastError(void);
void TVMAPISetLastError(const char *message);

static int call(const Step *step) {
    return TVMFuncCall(step->function, step->values, step->codes, (int)step->count, step->result, step->result_code);
}

static void keep_error(char *message) { strncpy(message, TVMGetLastError(), MESSAGE - 1); }

static void raise_error(const char *message) { TVMAPISetLastError(message); }
#endif

typedef struct { /* a parallel loop that a team of lanes runs */
    Lambda lambda;
    void *data;
    Group group;
    int64_t rows, team;
} Loop;

typedef struct {
    _Atomic uint64_t posted, finished; /* numbers of the last share that was given, and that was done */
    Loop *loop;
    int64_t member;
    int result;
} Mailbox;

typedef struct { /* what the caller keeps in memory until lanes_close; numbers are those of lanes and signals */
    Step *steps;
    int64_t count, core;
    const int64_t *waits, *posts, *mates;
    const int64_t *loops; /* two numbers a loop: its parts and the rows among them; 0 where it is cut into blocks */
} Table;

typedef struct {
    _Alignas(LINE) _Atomic uint64_t run;
} Signal;

typedef struct Lanes Lanes;
typedef struct {
    _Alignas(LINE) Mailbox mailbox;
    _Alignas(LINE) _Atomic int sleeping;
    sem_t wake;
    pthread_t thread;
    Lanes *all;
    Table table;
    Step *step;          /* being called; NULL: what is called now may not be split */
    int64_t loop;        /* how many parallel loops the step has begun */
    int64_t failed_step; /* -1: none */
    char message[MESSAGE];
} Lane;

struct Lanes {
    Lane *lanes;
    int64_t count;
    Signal *signals;           /* 0 to count - 1 start the lanes, the next `count` end them, then those of the tables */
    const int64_t *waiter_of;  /* of each signal, the lane that waits for it */
    uint64_t run;
    _Atomic int failed, stopping;
    cpu_set_t before; /* cores of the calling thread before it became the first lane */
};

static _Thread_local Lane *current;

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void wake(Lane *lane) {
    if (atomic_load(&lane->sleeping)) sem_post(&lane->wake);
}

/* Run a member's share of a loop. Parts are numbered column by column, as channels are: part = column * rows + row. Every
 * member gets equally many neighbours in the order of rows, and runs them column by column. */
static int run_share(Loop *loop, int64_t member) {
    int64_t parts = loop->group.num_task, columns = parts / loop->rows;
    int64_t first = parts * member / loop->team, end = parts * (member + 1) / loop->team;
    for (int64_t column = 0; column < columns; column++) {
        int64_t row = first > column ? (first - column + columns - 1) / columns : 0;
        for (; row * columns + column < end; row++) {
            int result = loop->lambda((int)(column * loop->rows + row), &loop->group, loop->data);
            if (result != 0) return result;
        }
    }
    return 0;
}

/* Do the share of another lane's loop that lies in the mailbox, if there is one. */
static int serve(Lane *me) {
    Mailbox *box = &me->mailbox;
    uint64_t posted = atomic_load_explicit(&box->posted, memory_order_acquire);
    if (posted == atomic_load_explicit(&box->finished, memory_order_relaxed)) return 0;
    box->result = run_share(box->loop, box->member);
    if (box->result != 0) keep_error(me->message);
    atomic_store_explicit(&box->finished, posted, memory_order_release);
    return 1;
}

static void rest(Lane *me, unsigned *looks, _Atomic uint64_t *value, uint64_t wanted) {
    if (serve(me)) {
        *looks = 0;
    } else if (++*looks < SPINS) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    } else if (*looks < SPINS + YIELDS) {
        sched_yield();
    } else {
        atomic_store(&me->sleeping, 1);
        if (atomic_load(value) < wanted && atomic_load(&me->mailbox.posted) == atomic_load(&me->mailbox.finished))
            sem_wait(&me->wake);
        atomic_store(&me->sleeping, 0);
        *looks = 0;
    }
}

static void wait_for(Lane *me, _Atomic uint64_t *value, uint64_t wanted) {
    unsigned looks = 0;
    while (atomic_load_explicit(value, memory_order_acquire) < wanted) rest(me, &looks, value, wanted);
}

static void give(Lanes *all, int64_t signal) {
    atomic_store(&all->signals[signal].run, all->run);
    wake(&all->lanes[all->waiter_of[signal]]);
}

/* In place of TVMBackendParallelLaunch. `wanted` is 0 where the kernel leaves the number of parts to the runtime: then it
 * is that of the team, or where the step says how to cut the loop by rows, what the step says. */
int lanes_launch(Lambda lambda, void *data, int wanted) {
    Lane *me = current;
    Step *step = me != NULL ? me->step : NULL;
    int64_t team = step != NULL ? step->mates + 1 : 1;
    int64_t parts = wanted > 0 ? wanted : team, rows = parts;
    int64_t number = step != NULL ? me->loop++ : 0;
    int by_rows = 0;
    if (team > 1 && wanted <= 0 && 2 * number < step->loops) {
        const int64_t *cut = &me->table.loops[step->first_loop + 2 * number];
        if (cut[0] > 0) parts = cut[0], rows = cut[1], by_rows = 1;
    }
    if (!by_rows && parts > MOST_TASKS) {
        raise_error("a kernel asks for more than 256 parts");
        return -1;
    }
    /* For TVMBackendParallelBarrier a counter a part, a cache line each; loops that are cut by rows have no barriers. */
    _Atomic int sync[(by_rows ? 1 : parts) * SYNC_STRIDE];
    memset(sync, 0, sizeof(sync));
    if (team > parts) team = parts;
    Loop loop = {lambda, data, {(void *)sync, (int32_t)parts}, rows, team};
    if (team == 1) return run_share(&loop, 0);
    if (step->threads < team) step->threads = team;
    me->step = NULL; /* a parallel loop inside a parallel loop is run by whoever comes to it */
    for (int64_t i = 0; i + 1 < team; i++) {
        Lane *mate = &me->all->lanes[me->table.mates[step->first_mate + i]];
        Mailbox *box = &mate->mailbox;
        box->loop = &loop, box->member = i + 1;
        atomic_store(&box->posted, atomic_load_explicit(&box->finished, memory_order_relaxed) + 1);
        wake(mate);
    }
    int result = run_share(&loop, 0);
    for (int64_t i = 0; i + 1 < team; i++) {
        Lane *mate = &me->all->lanes[me->table.mates[step->first_mate + i]];
        Mailbox *box = &mate->mailbox;
        uint64_t posted = atomic_load_explicit(&box->posted, memory_order_relaxed);
        for (unsigned looks = 0; atomic_load_explicit(&box->finished, memory_order_acquire) != posted; looks++)
            if (looks >= SPINS) sched_yield();
        if (box->result != 0 && result == 0) {
            raise_error(mate->message);
            result = box->result;
        }
    }
    me->step = step;
    return result;
}

/* Walk through the table once. After a failure anywhere nothing more is called, but every signal is still given. */
static void walk(Lane *me) {
    Lanes *all = me->all;
    const Table *table = &me->table;
    for (int64_t i = 0; i < table->count; i++) {
        Step *step = &table->steps[i];
        for (int64_t j = 0; j < step->waits; j++)
            wait_for(me, &all->signals[table->waits[step->first_wait + j]].run, all->run);
        step->threads = 1; /* more where a parallel loop is split */
        step->start_ns = now_ns();
        if (!atomic_load_explicit(&all->failed, memory_order_relaxed)) {
            me->step = step;
            me->loop = 0;
            if (call(step) != 0) {
                me->failed_step = i;
                keep_error(me->message);
                atomic_store(&all->failed, 1);
            }
            me->step = NULL;
        }
        step->end_ns = now_ns();
        step->cpu = sched_getcpu();
        for (int64_t j = 0; j < step->posts; j++) give(all, table->posts[step->first_post + j]);
    }
}

static int bind(int64_t core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    return pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void *serve_lane(void *argument) {
    Lane *me = argument;
    Lanes *all = me->all;
    int64_t number = me - all->lanes;
    current = me;
    bind(me->table.core); /* where it really ran, each step tells */
    for (uint64_t run = 1;; run++) {
        wait_for(me, &all->signals[number].run, run);
        if (atomic_load(&all->stopping)) return NULL;
        walk(me);
        give(all, all->count + number);
    }
}

static void start_all(Lanes *all) {
    all->run++;
    for (int64_t i = 1; i < all->count; i++) give(all, i);
}

void lanes_close(Lanes *all) {
    atomic_store(&all->stopping, 1);
    start_all(all);
    for (int64_t i = 1; i < all->count; i++) pthread_join(all->lanes[i].thread, NULL);
    pthread_setaffinity_np(pthread_self(), sizeof(all->before), &all->before);
    for (int64_t i = 0; i < all->count; i++) sem_destroy(&all->lanes[i].wake);
    free(all->signals);
    free(all->lanes);
    free(all);
}

/* A thread for every lane but the first, which is the thread that calls lanes_run. NULL where they cannot be had. */
Lanes *lanes_open(const Table *tables, int64_t count, const int64_t *waiter_of, int64_t signals) {
    Lanes *all = calloc(1, sizeof(Lanes));
    size_t lanes_size = (size_t)count * sizeof(Lane), signals_size = (size_t)signals * sizeof(Signal);
    if (all == NULL) return NULL;
    all->lanes = aligned_alloc(LINE, lanes_size);
    all->signals = aligned_alloc(LINE, signals_size);
    if (all->lanes == NULL || all->signals == NULL) {
        free(all->lanes);
        free(all->signals);
        free(all);
        return NULL;
    }
    memset(all->lanes, 0, lanes_size);
    memset(all->signals, 0, signals_size);
    all->waiter_of = waiter_of;
    pthread_getaffinity_np(pthread_self(), sizeof(all->before), &all->before);
    for (int64_t i = 0; i < count; i++) {
        Lane *lane = &all->lanes[i];
        lane->all = all;
        lane->table = tables[i];
        lane->failed_step = -1;
        sem_init(&lane->wake, 0, 0);
    }
    for (all->count = 1; all->count < count; all->count++) {
        Lane *lane = &all->lanes[all->count];
        if (pthread_create(&lane->thread, NULL, serve_lane, lane) != 0) {
            lanes_close(all);
            return NULL;
        }
    }
    return all;
}

/* Every table once; 0, or 1 where a step failed. */
int lanes_run(Lanes *all) {
    current = &all->lanes[0];
    bind(current->table.core);
    start_all(all);
    walk(current);
    for (int64_t i = 1; i < all->count; i++) wait_for(current, &all->signals[all->count + i].run, all->run);
    current = NULL;
    return atomic_exchange(&all->failed, 0);
}

/* The core that a lane may run on, as the system tells; -1 where it may run on several. The first lane is the caller. */
int64_t lanes_core(Lanes *all, int64_t lane) {
    cpu_set_t set;
    pthread_t thread = lane == 0 ? pthread_self() : all->lanes[lane].thread;
    if (pthread_getaffinity_np(thread, sizeof(set), &set) != 0 || CPU_COUNT(&set) != 1) return -1;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &set)) return core;
    return -1;
}

/* The step of a lane that failed in the last run, or -1, and what TVM said; forgotten when asked for. */
int64_t lanes_failure(Lanes *all, int64_t lane, const char **message) {
    int64_t step = all->lanes[lane].failed_step;
    *message = all->lanes[lane].message;
    all->lanes[lane].failed_step = -1;
    return step;
}
