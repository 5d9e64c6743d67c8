/*
 * A shell of libc's own starting, between other calls on a connection, reads from it and writes to it.
 *
 *   shells wordexp|popen|system
 */
#define _GNU_SOURCE
#include <wordexp.h>

#include "peer.h"

static int s;

static void round_trips(void)
{
	char bytes[100] = { 0 };

	for (int i = 0; i < 1000; i++)
		if (send(s, bytes, 100, MSG_NOSIGNAL) != 100 || recv(s, bytes, 100, MSG_WAITALL) != 100)
			die("a round trip", i);
}

/* Five bytes are unread, which the shell takes, and it sends six. */
static void runs(const char *how)
{
	char command[200], words[200], answer[6], peeked[5];
	wordexp_t list;

	if (send(s, "12345", 5, 0) != 5 || recv(s, peeked, 5, MSG_PEEK) < 1)
		die("send", 0);
	snprintf(command, sizeof(command), "test \"$(head -c 5 <&%d)\" = 12345 && echo hello >&%d && echo done", s, s);
	if (!strcmp(how, "wordexp")) {
		snprintf(words, sizeof(words), "$(%s)", command);
		if (wordexp(words, &list, 0) || list.we_wordc != 1 || strcmp(list.we_wordv[0], "done"))
			die("wordexp", 0);
		wordfree(&list);
	} else if (!strcmp(how, "popen")) {
		FILE *file = popen(command, "r");

		if (!file || !fgets(words, sizeof(words), file) || pclose(file) || strcmp(words, "done\n"))
			die("popen", 0);
	} else {
		strcat(command, " > /dev/null");
		if (system(command))
			die("system", 0);
	}
	if (recv(s, answer, 6, MSG_WAITALL) != 6 || memcmp(answer, "hello\n", 6))
		die("the answer", 0);
}

int main(int count, char **words)
{
	if (count != 2)
		return 2;
	alarm(30);
	for (int i = 0; i < 3; i++) {
		s = echoing_peer();
		round_trips();
		runs(words[1]);
		round_trips();
		close(s);
	}
	puts("all there");
	return 0;
}
