/*
 * A handler leaves a peek that waits for more than there is by siglongjmp. Waits go on to tell of one byte.
 *
 *   jumped_peek
 */
#define _GNU_SOURCE
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "peer.h"

enum { ROUNDS = 10 };

static sigjmp_buf before;

static void handler(int signal)
{
	siglongjmp(before, signal);
}

int main(void)
{
	struct itimerval soon = { .it_value.tv_usec = 20000 };
	char bytes[100] = { 0 };

	signal(SIGALRM, handler);
	for (volatile int round = 0; round < ROUNDS; round++) {
		volatile int s = echoing_peer();
		struct pollfd one = { .fd = s, .events = POLLIN };

		for (int i = 0; i < 1000; i++)
			if (send(s, bytes, 100, 0) != 100 || recv(s, bytes, 100, MSG_WAITALL) != 100)
				die("warm", i);
		if (send(s, bytes, 5, 0) != 5 || recv(s, bytes, 5, MSG_PEEK | MSG_WAITALL) != 5)
			die("send", round);
		if (!sigsetjmp(before, 1)) {
			setitimer(ITIMER_REAL, &soon, NULL);
			die("the peek came back", recv(s, bytes, 20, MSG_PEEK | MSG_WAITALL));
		}
		if (recv(s, bytes, 20, MSG_DONTWAIT) != 5 || send(s, bytes, 1, 0) != 1)
			die("after the jump", round);
		if (poll(&one, 1, 10000) != 1 || recv(s, bytes, 20, 0) != 1)
			die("poll", round);
		close(s);
	}
	puts("all there");
	return 0;
}
