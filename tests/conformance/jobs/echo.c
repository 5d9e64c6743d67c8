// An echo server and a client that checks each byte, on sockets of libc and with a choice of waits.
//
//   echo WAIT serve                                    prints its port
//   echo WAIT ask PORT CONNECTIONS EXCHANGES BYTES     ends with 0 when all came back
//   echo WAIT both CONNECTIONS EXCHANGES BYTES         the two in one process
//
// Each connection sends EXCHANGES messages of 1 to BYTES bytes, the next one when the last is back.
// Waits whose name begins with "bare-" are made by an instruction of this program's own, as runtimes
// without libc do: whoever interposes libc does not see them. Only a program that is built with BARE
// has it. x86-64.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s: %m\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

enum { MOST = 1024, CHUNK = 65536 };

// A system call past libc; as syscall(2) otherwise.
static long bare(long number, long a, long b, long c, long d, long e, long f) {
#ifdef BARE
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#else
    (void)number, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    fprintf(stderr, "this wait is for a program that is built with BARE\n");
    exit(2);
    long result = -1;
#endif
    if (result < 0) {
        errno = -result;
        return -1;
    }
    return result;
}

struct end {
    int fd;
    // What the next wait is for; EPOLLIN and EPOLLOUT are POLLIN and POLLOUT.
    uint32_t wanted;
    uint32_t registered;
    bool is_polled; // by AIO: one poll tells once
    struct iocb poll;
    uint8_t *out, *in;
    size_t sent, received, length;
    // Of a client.
    uint32_t seed;
    int exchange;
};

struct loop {
    const char *wait;
    bool is_bare, is_edge, is_fresh, is_aio;
    int listener, set, control;
    aio_context_t aio;
    unsigned turn;
    struct end *ends[MOST];
    int count;
    int exchanges;
    size_t most_bytes;
};

static bool is(const struct loop *loop, const char *kind) {
    return strstr(loop->wait, kind) != NULL;
}

static void start(struct loop *loop, const char *wait) {
    memset(loop, 0, sizeof *loop);
    loop->wait = wait;
    loop->listener = -1;
    loop->is_bare = strncmp(wait, "bare-", 5) == 0;
    loop->is_edge = is(loop, "edge");
    loop->is_fresh = is(loop, "fresh");
    loop->is_aio = is(loop, "aio");
    if (loop->is_aio) {
        CHECK(bare(SYS_io_setup, MOST, (long)&loop->aio, 0, 0, 0, 0) == 0);
    } else if (!loop->is_fresh) {
        CHECK((loop->set = epoll_create1(EPOLL_CLOEXEC)) >= 0);
        // As runtimes do whose handle for registering may outlive the one for waiting.
        loop->control = is(loop, "dup") ? fcntl(loop->set, F_DUPFD_CLOEXEC, 3) : loop->set;
    }
}

static void enter(struct loop *loop, int set, struct end *end) {
    struct epoll_event event = {end->wanted | (loop->is_edge ? EPOLLET : 0), {.ptr = end}};
    int op = end->registered && !loop->is_fresh ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    CHECK(epoll_ctl(set, op, end->fd, &event) == 0);
    end->registered = end->wanted;
}

// After each change of what is wanted.
static void rearm(struct loop *loop, struct end *end) {
    if (loop->is_aio && !end->is_polled) {
        struct iocb *each = &end->poll;
        memset(each, 0, sizeof *each);
        each->aio_fildes = end->fd;
        each->aio_lio_opcode = IOCB_CMD_POLL;
        each->aio_buf = end->wanted;
        each->aio_data = (uintptr_t)end;
        CHECK(bare(SYS_io_submit, loop->aio, 1, (long)&each, 0, 0, 0) == 1);
        end->is_polled = true;
    } else if (!loop->is_fresh && !loop->is_aio && is(loop, "epoll")) {
        if (end->registered != end->wanted) enter(loop, loop->control, end);
    }
}

static struct end *add(struct loop *loop, int fd) {
    struct end *end = calloc(1, sizeof *end);
    CHECK(end && loop->count < MOST);
    end->fd = fd;
    end->wanted = EPOLLIN;
    loop->ends[loop->count++] = end;
    return end;
}

static void drop(struct loop *loop, struct end *end) {
    CHECK(close(end->fd) == 0);
    for (int i = 0; i < loop->count; i++)
        if (loop->ends[i] == end) loop->ends[i] = loop->ends[--loop->count];
    free(end->out);
    free(end->in);
    // The rest stays, so that an event that comes too late is seen.
    end->fd = -1;
}

static int wait_epoll(struct loop *loop, int set, struct end **ready) {
    struct epoll_event events[64];
    // "mixed" takes turns between a wait that is seen and one that is not.
    bool is_bare = loop->is_bare || (is(loop, "mixed") && loop->turn++ % 2);
    int count;
    do {
        count = is_bare ? bare(SYS_epoll_pwait, set, (long)events, 64, -1, 0, 8)
                        : epoll_wait(set, events, 64, -1);
    } while (count < 0 && errno == EINTR);
    CHECK(count > 0);
    for (int i = 0; i < count; i++) {
        ready[i] = events[i].data.ptr;
        // One wait tells of each registration once, and of none that is gone.
        for (int j = 0; j < i; j++) CHECK(ready[j] != ready[i]);
        CHECK(ready[i]->fd >= 0);
    }
    return count;
}

static int wait_poll(struct loop *loop, struct end **ready) {
    struct pollfd polled[MOST];
    for (int i = 0; i < loop->count; i++)
        polled[i] = (struct pollfd){loop->ends[i]->fd, loop->ends[i]->wanted, 0};
    int found = loop->is_bare ? bare(SYS_ppoll, (long)polled, loop->count, 0, 0, 8, 0)
                              : poll(polled, loop->count, -1);
    CHECK(found > 0);
    int count = 0;
    for (int i = 0; i < loop->count; i++)
        if (polled[i].revents) ready[count++] = loop->ends[i];
    return count;
}

static int wait_select(struct loop *loop, struct end **ready) {
    fd_set in, out;
    int most = 0;
    FD_ZERO(&in);
    FD_ZERO(&out);
    for (int i = 0; i < loop->count; i++) {
        struct end *end = loop->ends[i];
        CHECK(end->fd < FD_SETSIZE);
        if (end->wanted & EPOLLIN) FD_SET(end->fd, &in);
        if (end->wanted & EPOLLOUT) FD_SET(end->fd, &out);
        if (end->fd > most) most = end->fd;
    }
    int found = loop->is_bare
                    ? bare(SYS_pselect6, most + 1, (long)&in, (long)&out, 0, 0, 0)
                    : select(most + 1, &in, &out, NULL, NULL);
    CHECK(found > 0);
    int count = 0;
    for (int i = 0; i < loop->count; i++) {
        int fd = loop->ends[i]->fd;
        if (FD_ISSET(fd, &in) || FD_ISSET(fd, &out)) ready[count++] = loop->ends[i];
    }
    return count;
}

static int wait_aio(struct loop *loop, struct end **ready) {
    struct io_event events[64];
    int count = bare(SYS_io_getevents, loop->aio, 1, 64, (long)events, 0, 0);
    CHECK(count > 0);
    for (int i = 0; i < count; i++) {
        ready[i] = (struct end *)(uintptr_t)events[i].data;
        ready[i]->is_polled = false;
    }
    return count;
}

static int wait_for(struct loop *loop, struct end **ready) {
    if (loop->is_aio) return wait_aio(loop, ready);
    if (is(loop, "select")) return wait_select(loop, ready);
    if (is(loop, "epoll") && loop->is_fresh) {
        int set = epoll_create1(EPOLL_CLOEXEC);
        CHECK(set >= 0);
        for (int i = 0; i < loop->count; i++) enter(loop, set, loop->ends[i]);
        int count = wait_epoll(loop, set, ready);
        CHECK(close(set) == 0);
        return count;
    }
    if (is(loop, "epoll")) return wait_epoll(loop, loop->set, ready);
    return wait_poll(loop, ready);
}

static bool would_block(ssize_t done) { return done < 0 && (errno == EAGAIN || errno == EINTR); }

static void set_up(int fd, bool is_blocking) {
    int one = 1;
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    if (!is_blocking) CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
}

// Server: reads when nothing is left to write. False at the end.
static bool echo(struct loop *loop, struct end *end) {
    for (;;) {
        while (end->sent < end->length) {
            ssize_t done = write(end->fd, end->out + end->sent, end->length - end->sent);
            if (would_block(done)) {
                end->wanted = EPOLLOUT;
                return true;
            }
            CHECK(done > 0);
            end->sent += done;
        }
        if (end->wanted == EPOLLIN && end->length && !loop->is_edge) {
            // Level-triggered: one read for each time that it is told of.
            end->length = end->sent = 0;
            return true;
        }
        end->wanted = EPOLLIN;
        end->length = end->sent = 0;
        ssize_t done = read(end->fd, end->out, CHUNK);
        if (would_block(done)) return true;
        CHECK(done >= 0);
        if (done == 0) return false;
        end->length = done;
    }
}

static void take(struct loop *loop) {
    int fd = accept(loop->listener, NULL, NULL);
    if (would_block(fd)) return;
    CHECK(fd >= 0);
    set_up(fd, false);
    struct end *end = add(loop, fd);
    CHECK((end->out = malloc(CHUNK)));
    rearm(loop, end);
}

static void serve(struct loop *loop) {
    struct end *ready[MOST];
    CHECK(fcntl(loop->listener, F_SETFL, O_NONBLOCK) == 0);
    struct end *listening = add(loop, loop->listener);
    rearm(loop, listening);
    for (;;) {
        int count = wait_for(loop, ready);
        for (int i = 0; i < count; i++) {
            struct end *end = ready[i];
            if (end == listening && loop->is_edge) {
                for (int before = -1; before != loop->count;) before = loop->count, take(loop);
            } else if (end == listening) {
                take(loop);
            } else if (!echo(loop, end)) {
                drop(loop, end);
                continue;
            }
            rearm(loop, end);
        }
    }
}

static void *serve_blocking(void *argument) {
    int fd = (int)(intptr_t)argument;
    uint8_t *buffer = malloc(CHUNK);
    CHECK(buffer);
    for (;;) {
        ssize_t got = recv(fd, buffer, CHUNK, 0);
        CHECK(got >= 0);
        if (got == 0) break;
        for (ssize_t sent = 0, done; sent < got; sent += done)
            CHECK((done = send(fd, buffer + sent, got - sent, 0)) > 0);
    }
    free(buffer);
    CHECK(close(fd) == 0);
    return NULL;
}

static void serve_threads(int listener) {
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0);
        set_up(fd, true);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, serve_blocking, (void *)(intptr_t)fd) == 0);
        CHECK(pthread_detach(thread) == 0);
    }
}

static uint32_t next(uint32_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    return *seed ^= *seed << 5;
}

// The next message of a client's connection.
static void compose(struct loop *loop, struct end *end) {
    end->length = 1 + next(&end->seed) % loop->most_bytes;
    end->sent = end->received = 0;
    for (size_t i = 0; i < end->length; i++) end->out[i] = next(&end->seed);
}

static struct end *join(struct loop *loop, int port, int number) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    struct end *end = add(loop, fd);
    CHECK((end->out = malloc(loop->most_bytes)) && (end->in = malloc(loop->most_bytes)));
    end->seed = 2463534242u + number;
    compose(loop, end);
    return end;
}

// After the last message: nothing but the end may come.
static void finish(struct loop *loop, struct end *end) {
    uint8_t more;
    CHECK(fcntl(end->fd, F_SETFL, 0) == 0);
    CHECK(shutdown(end->fd, SHUT_WR) == 0);
    CHECK(recv(end->fd, &more, 1, 0) == 0);
    drop(loop, end);
}

// Client: as far as it goes. False when the connection is done.
static bool exchange(struct loop *loop, struct end *end) {
    for (;;) {
        bool is_stuck = true;
        if (end->sent < end->length) {
            ssize_t done = write(end->fd, end->out + end->sent, end->length - end->sent);
            CHECK(done > 0 || would_block(done));
            if (done > 0) end->sent += done, is_stuck = false;
        }
        if (end->sent > end->received) {
            ssize_t done = read(end->fd, end->in + end->received, end->length - end->received);
            CHECK(done > 0 || would_block(done));
            if (done > 0) end->received += done, is_stuck = false;
        }
        if (end->received == end->length) {
            CHECK(memcmp(end->in, end->out, end->length) == 0);
            if (++end->exchange == loop->exchanges) return false;
            compose(loop, end);
        } else if (is_stuck) {
            end->wanted = EPOLLIN | (end->sent < end->length ? EPOLLOUT : 0);
            return true;
        }
    }
}

static void ask(struct loop *loop, int port, int connections) {
    struct end *ready[MOST];
    for (int i = 0; i < connections; i++) {
        struct end *end = join(loop, port, i);
        set_up(end->fd, false);
        end->wanted = EPOLLIN | EPOLLOUT;
        rearm(loop, end);
    }
    while (loop->count) {
        int count = wait_for(loop, ready);
        for (int i = 0; i < count; i++) {
            if (exchange(loop, ready[i]))
                rearm(loop, ready[i]);
            else
                finish(loop, ready[i]);
        }
    }
}

struct asker {
    struct loop *loop;
    struct end *end;
};

static void *ask_blocking(void *argument) {
    struct asker *asker = argument;
    struct end *end = asker->end;
    do {
        // What does not fit into the buffers on the way must be read meanwhile.
        while (end->received < end->length) {
            size_t part = end->length - end->sent < CHUNK ? end->length - end->sent : CHUNK;
            for (size_t sent = 0; sent < part;) {
                ssize_t done = send(end->fd, end->out + end->sent + sent, part - sent, 0);
                CHECK(done > 0);
                sent += done;
            }
            end->sent += part;
            while (end->received < end->sent) {
                ssize_t done = recv(end->fd, end->in + end->received, end->sent - end->received, 0);
                CHECK(done > 0);
                end->received += done;
            }
        }
        CHECK(memcmp(end->in, end->out, end->length) == 0);
        compose(asker->loop, end);
    } while (++end->exchange < asker->loop->exchanges);
    uint8_t more;
    CHECK(shutdown(end->fd, SHUT_WR) == 0 && recv(end->fd, &more, 1, 0) == 0);
    CHECK(close(end->fd) == 0);
    return NULL;
}

static void ask_threads(struct loop *loop, int port, int connections) {
    pthread_t threads[MOST];
    struct asker askers[MOST];
    for (int i = 0; i < connections; i++) {
        askers[i] = (struct asker){loop, join(loop, port, i)};
        set_up(askers[i].end->fd, true);
        CHECK(pthread_create(&threads[i], NULL, ask_blocking, &askers[i]) == 0);
    }
    for (int i = 0; i < connections; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static int listen_at(int *port) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(listen(listener, MOST) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&at, &size) == 0);
    *port = ntohs(at.sin_port);
    return listener;
}

static const char *wait_name;

static void *run_server(void *argument) {
    int listener = (int)(intptr_t)argument;
    if (strcmp(wait_name, "threads") == 0) {
        serve_threads(listener);
    } else {
        struct loop *loop = malloc(sizeof *loop);
        CHECK(loop);
        start(loop, wait_name);
        loop->listener = listener;
        serve(loop);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    wait_name = argv[1];
    int port = 0;
    if (strcmp(argv[2], "serve") == 0) {
        int listener = listen_at(&port);
        printf("%d\n", port);
        fflush(stdout);
        run_server((void *)(intptr_t)listener);
    }
    bool is_both = strcmp(argv[2], "both") == 0;
    if (is_both) {
        pthread_t server;
        int listener = listen_at(&port);
        CHECK(pthread_create(&server, NULL, run_server, (void *)(intptr_t)listener) == 0);
    } else {
        port = atoi(argv[3]);
    }
    char **load = argv + (is_both ? 3 : 4);
    CHECK(load + 3 <= argv + argc);
    static struct loop loop;
    start(&loop, wait_name);
    loop.exchanges = atoi(load[1]);
    loop.most_bytes = atoi(load[2]);
    if (strcmp(wait_name, "threads") == 0)
        ask_threads(&loop, port, atoi(load[0]));
    else
        ask(&loop, port, atoi(load[0]));
    printf("all came back\n");
    return 0;
}
