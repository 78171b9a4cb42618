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
trap 'kill -KILL -1; ended=yes' USR1
# From inside: ignored here, so that no student's signal ends a `wait` early, and as ever in the commands.
signals='HUP INT QUIT ILL TRAP ABRT BUS FPE SEGV USR2 PIPE ALRM TERM XCPU XFSZ VTALRM PROF IO PWR SYS TTIN TTOU TSTP'
trap '' $signals

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
    ended=
    (
        trap - USR1 $signals
        eval "$task"
    ) </dev/null >&5 2>&6 4>&- 5>&- 6>&- &
    # `wait` also returns for a command that stopped, so it is asked until that one is gone, and then once more: the
    # command may have gone on and ended meanwhile. (Not with -f, which at times waits for ever for what has ended.)
    while wait -f $!; code=$?; [ $code -gt 128 ] && [ -z "$ended" ] && kill -0 $!; do :; done
    if [ "$ended" ]; then
        code=137
    elif [ $code -gt 128 ]; then
        wait $!
        code=$?
    fi
    echo $code >&4
done
