#!/bin/bash
# The command of a worker pod: sshd as this user, on port 2222, with the key that the operator mounts as
# its own host key. No capability and no root are needed.
set -euo pipefail
key=$HOME/.ssh/id_rsa
[ -r "$key" ] || { echo "worker: $key cannot be read by uid $(id -u): set sshAuthMountPath to $HOME/.ssh, runAsUser to $(id -u)" >&2; exit 78; }
configuration=$(mktemp)
cat > "$configuration" << END
Port ${TRIREME_SSH_PORT:-2222}
HostKey $key
AuthorizedKeysFile $HOME/.ssh/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
MaxStartups 1000
END
exec /usr/sbin/sshd -D -e -f "$configuration"
