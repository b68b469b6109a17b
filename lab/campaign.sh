#!/bin/sh
# Plans held against measurements, one host and hosts with links: `lab/campaign.sh FOLDER`, as root, on a machine where
# nobody else works (an hour on two cores). Small graphs come first. A call that is ended goes on where it was; disturbed points are measured
# again. MINUTES=2 shortens each setting; GRAPHS="…" takes others.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: lab/campaign.sh FOLDER}
mkdir -p "$out"
seconds=$((60 * ${MINUTES:-4}))
graphs=${GRAPHS:-"er:nodes=20000,degree=8,features=64,classes=16 kronecker:scale=13,degree=16,features=64,classes=16
sbm:nodes=20000,degree=12,features=64,classes=16 pubmed email-enron com-dblp cnr-2000"}
# shellcheck disable=SC2086
weft bench plan $graphs --out "$out/one-host" --ranks 1,2,4,8 --seconds "$((seconds * 2))"
for link in 100mbit 1gbit none; do
  for shape in "4 1" "2 2"; do
    set -- $shape
    folder=$out/$1x$2-$link
    options="--hosts $1 --slots $2"
    [ "$link" = none ] || options="$options --link $link"
    # shellcheck disable=SC2086
    python "$here/hosts.py" $options -- mpirun --hostfile '{hosts}' -n 4 python -m weft bench plan $graphs --out "$folder" \
      --profile "$out/one-host/profile.json" --seconds "$seconds"
  done
done
weft bench plan --memory 20 --out "$out/one-host" --seconds "$seconds"
weft bench plan --report "$out"/*/
