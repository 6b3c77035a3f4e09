# What needs apt's and dpkg's locks. Exit status 3: the last line says why.
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
# Ubuntu's needrestart would restart services that use a library that was upgraded: ours wait for the switch.
export NEEDRESTART_SUSPEND=1
log=${0%/*}/log
records=${records:-/var/lib/gpuquilt/packages}
etc=${etc:-/etc/apt}
lists=

fail() { echo "$host: $1"; exit 3; }

# DPkg::Lock::Timeout covers neither the locks of the lists and of the downloads, nor dpkg called by itself.
patiently() { # COMMAND…: again and again while another program holds a lock, for 10 minutes
    end=$(($(date +%s) + 600))
    until "$@"; do
        tail -n 3 "$log" | grep -qiE 'could not get lock|unable to lock|lock was locked' || return 1
        [ "$(date +%s)" -lt $end ] || fail "another program holds apt's lock for too long ($(reason)): end it, then run again."
        echo "waiting for another program that holds the lock of apt or dpkg"
        sleep 2
    done
}

apt() {
    patiently apt-get $lists --yes -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confold -o Dpkg::Use-Pty=0 "$@"
}

reason() { # the error that the log ends with: apt's first of several in a row, or dpkg's own
    tail -n 60 "$log" | tr -d '\r' | awk '
        /^dpkg: error/ { found = $0; if (/:$/ && getline > 0) found = found $0; inside = 1; next }
        /^W: / { next }
        /^E: / { if (!inside) found = substr($0, 4); inside = 1; next }
        /^(Errors were encountered|Processing was halted|dpkg: too many errors| )/ { next }
        { inside = 0 }
        END { sub(/\.$/, "", found); print found == "" ? "no reason was given" : found }'
}

unfinished() { # STATES
    dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -nE "s/^($1) //p" | sort -u | tr '\n' ' '
}

half_installed() { # ok: the removal was broken off; reinstreq: the unpacking
    dpkg-query -W -f '${db:Status-Status} ${db:Status-Eflag} ${binary:Package}\n' | sed -n "s/^half-installed $1 //p"
}

updates() { # what dpkg has not yet written into its status; apt refuses to work while there is any
    ls "${DPKG_ADMINDIR:-/var/lib/dpkg}/updates" 2>/dev/null
}

finish_dpkg() { # end what a power cut or a kill has left
    names=$(unfinished 'unpacked|half-[a-z]+|triggers-[a-z]+')
    [ -n "$names$(updates)" ] || return 0
    echo "finishing what dpkg was interrupted in: $names"
    patiently dpkg --force-confold --configure -a || true
    gone=$(half_installed ok)
    [ -z "$gone" ] || patiently dpkg --remove $gone || true
    torn=$(half_installed reinstreq)
    if [ -n "$(unfinished 'unpacked|half-[a-z]+')" ] || ! apt check; then
        # Without their names apt calls torn ones done and leaves them as they are.
        apt --fix-broken --no-remove ${torn:+--reinstall} install $torn || true
    fi
    names=$(unfinished 'unpacked|half-[a-z]+')
    [ -z "$names" ] || fail "dpkg cannot finish ${names% } ($(reason)): see to it with \`dpkg --configure -a\` there, then run again."
}

refresh_lists() {
    apt update || fail "the package lists could not be refreshed ($(reason)): see to it with \`apt-get update\` there, then run again."
}

earlier_run() { # work of an earlier run goes on when its controller is gone
    while systemctl --quiet is-active 'gpuquilt-install-*' 2>/dev/null; do
        echo "waiting for an earlier run that still installs"
        sleep 2
    done
}

refresh() { # what a simulation needs to be right
    earlier_run
    finish_dpkg
    refresh_lists
}

settle() { # likewise of a purge: a package that cannot be configured can still go
    earlier_run
    [ -z "$(updates)" ] || patiently dpkg --force-confold --configure -a || true
    torn=$(half_installed reinstreq)
    [ -z "$torn" ] || apt --fix-broken --no-remove --reinstall install $torn || true
}

simulated() { # the digest of what apt would do: COMMAND OPTION… NAME…
    apt-get --simulate "$@" 2>/dev/null | grep -E '^(Inst|Remv|Purg) ' | sha256sum | cut -c -64
}

record() { # RECORD NAME…: these came by us
    file=$records/$1
    shift
    [ $# -gt 0 ] || return 0
    mkdir -p "$records"
    { cat "$file" 2>/dev/null; printf '%s\n' "$@"; } | sort -u >"$file.new"
    mv "$file.new" "$file"
}

install_packages() { # RECORD DIGEST "NAME…", which were not there, COMMAND OPTION… NAME…, as they were simulated
    name=$1 digest=$2 new=$3
    shift 3
    [ "$(simulated "$@")" = "$digest" ] || fail "what apt would do has changed since it was looked at: run again."
    # First of all: what a broken run has unpacked came by us, too.
    record "$name" $new
    apt "$@" || fail "apt did not come to its end ($(reason)): what led to it is in $log there; see to it, then run again."
}

purge_packages() { # RECORD DIGEST NAME…
    name=$1 digest=$2
    shift 2
    if [ $# -gt 0 ]; then
        [ "$(simulated purge "$@")" = "$digest" ] || fail "what apt would do has changed since it was looked at: run again."
        apt purge "$@" || fail "the packages could not be removed ($(reason)): see to it with \`apt-get purge\` there, then run again."
    fi
    rm -f "$records/$name"
}
