#!/usr/bin/env bash
# Gathers what stands in the image: `bash image/root.sh PROGRAM FOLDER`. The folder is made anew; in it `root` is what the
# image's `/` will be, and `root.tar` the same with its owners.
#
# The libraries come from this machine, which is the one that the program was linked on, so they fit.
set -euo pipefail

program=$1 folder=$2 root=$2/root
rm -rf "$folder"
mkdir -p "$root"/usr/bin "$root"/etc/ssl/certs "$root"/tmp "$root"/var/lib/webloom
chmod 1777 "$root"/tmp
install -m 755 "$program" "$root"/usr/bin/webloom

# Each library at the path at which the loader looks for it, links followed. The second kind of line is the loader's own.
ldd "$program" | awk '$2 == "=>" && $3 ~ "^/" { print $3 } $1 ~ "^/" { print $1 }' | while read -r library; do
    install -D -m 755 "$(readlink -f "$library")" "$root$library"
done

# Whom to trust, for programs that an agent starts; webloom itself has the usual authorities in it.
certificates=/etc/ssl/certs/ca-certificates.crt
if [ -e "$certificates" ]; then
    install -m 644 "$certificates" "$root$certificates"
else
    echo "no $certificates here: programs in the image will trust nobody over HTTPS" >&2
fi

cat >"$root"/etc/passwd <<'PASSWD'
root:x:0:0:root:/:/
webloom:x:65532:65532:webloom:/var/lib/webloom:/
PASSWD
cat >"$root"/etc/group <<'GROUP'
root:x:0:
webloom:x:65532:
GROUP
echo 'hosts: files dns' >"$root"/etc/nsswitch.conf

# Whoever runs in the image (65532, without a name outside) owns the database, and nothing else.
data=./var/lib/webloom
tar --create --file "$folder"/root.tar --directory "$root" --owner 0 --group 0 --exclude "$data" .
tar --append --file "$folder"/root.tar --directory "$root" --owner 65532 --group 65532 "$data"
