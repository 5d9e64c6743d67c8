# echo.pl listen | connect HOST PORT
use strict;
use warnings;
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP TCP_NODELAY);

my ($what, $host, $port) = @ARGV;
$| = 1;

if ($what eq 'listen') {
    $SIG{CHLD} = 'IGNORE';
    my $listener = IO::Socket::INET->new(Listen => 5, LocalPort => 0) or die "listen: $!";
    print 'port ', $listener->sockport, "\n";
    while (my $socket = $listener->accept) {
        next if fork;    # a child for each connection, as servers in Perl do
        close $listener;
        while (sysread($socket, my $bytes, 65536)) {
            for (my $done = 0; $done < length $bytes;) {
                $done += syswrite($socket, $bytes, length($bytes) - $done, $done) // die "write: $!";
            }
        }
        exit;
    }
}

sub random_bytes { join '', map { chr rand 256 } 1 .. shift }

for my $nth (1 .. 4) {
    my $socket = IO::Socket::INET->new(PeerAddr => $host, PeerPort => $port) or die "connect: $!";
    setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1;
    for my $i (1 .. 400) {
        my $sent = random_bytes(1 + rand($i % 50 ? 200 : 60000));
        syswrite($socket, $sent) == length $sent or die "short write";
        my $got = '';
        while (length $got < length $sent) {
            sysread($socket, $got, 65536, length $got) or die "ended early: $!";
        }
        $got eq $sent or die 'the echo differs';
    }
    shutdown $socket, 1;
    defined(my $left = sysread($socket, my $more, 1)) or die "read: $!";
    $left == 0 or die 'more than the echo';
}
print "same\n";
