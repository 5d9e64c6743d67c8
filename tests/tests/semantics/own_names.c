/* An object has functions of its own by names that libc has, too: it gets its own ones, with what it passed. */
#include "pair.h"

const char *reports(int number, double real);
const char *names(void);

int main(void)
{
	const char *report;
	char line[8];
	int ends[2];

	connects(ends);
	/* Also where the number that libc's function would take is a connection. */
	report = reports(ends[0], 1.5);
	report = strchr(report, ' ');
	if (!report || strcmp(report, " 1.50 text 1 2 3 4 3.0 4.500"))
		die(report ? report : "nothing", 0);
	if (strcmp(names(), "ab345f"))
		die(names(), 0);
	if (dup2(ends[0], 0) || strcmp(names(), "ab345f") || write(0, "more", 5) != 5 || recv(ends[1], line, 5, 0) != 5)
		die("dup2", 0);
	puts("all there");
	return 0;
}
