# Process 1 of a sandbox: runs one command after the other and says how each ended. $1 is where to say it.
#
# It comes with nothing but bash, starts in 2 ms, and a student of the same user cannot look into it: its program file
# is one that can be run but not read, which closes /proc/1 to everyone inside. The kernel ends all processes of the
# sandbox when this one ends, and it ends when nobody is left to send commands.
exec 4>&"$1" 5>&1 6>&2 >/dev/null 2>&1
case $1 in 4 | 5 | 6) ;; *) eval "exec $1>&-" ;; esac # or every command would inherit it
umask 022
# Each command is a process group of its own, and SIGINT reaches it: without job control bash would have it ignored.
set -m
# From outside, at a limit: kill(-1) ends every process here but this one, at once, so that no fork gets away.
trap 'kill -KILL -1' USR1
# From inside: noticed, which keeps the default (or bash's own idea of it) from happening.
trap : HUP INT QUIT ILL TRAP ABRT BUS FPE SEGV USR2 PIPE ALRM TERM XCPU XFSZ VTALRM PROF IO PWR SYS TTIN TTOU TSTP

echo ready >&4
while IFS= read -r task; do
    case $task in
        +*) task=$(head -c "${task#+}") ;; # a long one: `read` takes a system call for each byte
    esac
    if [ "$task" = clear ]; then
        kill -KILL -1
        echo 0 >&4
        continue
    fi
    (eval "$task") </dev/null >&5 2>&6 4>&- 5>&- 6>&- &
    wait -f $!
    code=$?
    # `wait` also returns for a signal to this process, and for a command that stopped.
    while [ $code -gt 128 ] && kill -0 $!; do
        wait -f $!
        code=$?
    done
    echo $code >&4
done
