/* A thread for each connection, as servers in C have them. It knows nothing of goroutines. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_key_t key;
static _Thread_local int served;
static int ended, cleaned;

static void at_end(void *value) { __atomic_add_fetch(&ended, *(int *)value == served, __ATOMIC_SEQ_CST); }
static void clean(void *counter) { __atomic_add_fetch((int *)counter, 1, __ATOMIC_SEQ_CST); }

static void *serve(void *argument) {
    int fd = (int)(long)argument;
    char bytes[256];
    pthread_setspecific(key, &served);
    pthread_cleanup_push(clean, &cleaned);
    for (;;) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0)
            break;
        for (ssize_t sent = 0; sent < n;)
            sent += write(fd, bytes + sent, n - sent);
        served++;
    }
    close(fd);
    if (fd % 2)
        pthread_exit((void *)(long)served);
    pthread_cleanup_pop(1);
    return (void *)(long)served;
}

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    int connections = atoi(arguments[1]), listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    pthread_key_create(&key, at_end);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1024)
        || getsockname(listener, (struct sockaddr *)&address, &length))
        return 3;
    printf("%d %d\n", ntohs(address.sin_port), getpid());
    fflush(stdout);
    pthread_t *threads = calloc(connections, sizeof *threads);
    for (int i = 0; i < connections; i++) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0 || pthread_create(&threads[i], NULL, serve, (void *)(long)fd))
            return 4;
    }
    long total = 0;
    for (int i = 0; i < connections; i++) {
        void *value;
        if (pthread_join(threads[i], &value))
            return 5;
        total += (long)value;
    }
    printf("%ld %d %d\n", total, ended, cleaned);
    return 0;
}
