#!/bin/sh
# Installs offline-summ from this bundle on a machine without network, and scores the example.
#
#     sh install.sh [TARGET]
#
# TARGET is the folder for the programs, ./offline-summ if none is given. The weights go to $OFFLINE_SUMM_HOME, or to
# the user's cache. First every file is compared with SHA256SUMS; if one differs, nothing is installed.
# PYTHON=/path/to/python chooses a Python.
set -eu

fail() {
  echo "install.sh: $*" >&2
  exit 4
}

started_in=$(pwd)
bundle=$(cd "$(dirname "$0")" && pwd)
target=${1:-offline-summ}
case $target in /*) ;; *) target=$started_in/$target ;; esac
cd "$bundle"
[ -f SHA256SUMS ] && [ -f bundle.txt ] ||
  fail "'$bundle' is no complete bundle: SHA256SUMS is missing. Run \`offline-summ bundle\` to its end."
about() { sed -n "s/^$1=//p" bundle.txt; }

# -- Every file, before anything else ------------------------------------------------------------------------------
command -v sha256sum >/dev/null || fail "sha256sum is missing. Install coreutils or busybox."
echo "== Verifying $(wc -l < SHA256SUMS | tr -d ' ') files"
echo "SHA-256 of SHA256SUMS: $(sha256sum < SHA256SUMS | cut -c1-64)"
unlisted=$(find . ! -type d | sed 's|^\./||' | LC_ALL=C sort |
  awk 'NR == FNR { known[substr($0, 67)]; next } !($0 in known) && $0 != "SHA256SUMS"' SHA256SUMS -)
[ -z "$unlisted" ] ||
  fail "The file '$(echo "$unlisted" | head -n 1)' does not belong to the bundle. Nothing was installed. Remove it."
linked=$(find . -type l | head -n 1)
[ -z "$linked" ] || fail "'$linked' is a link, and the bundle has none. Nothing was installed. Copy the bundle again."
verified=$(LC_ALL=C sha256sum -c SHA256SUMS 2>/dev/null) || true
wrong=$(printf '%s\n' "$verified" | sed -n 's/: FAILED.*$//p' | head -n 1)
if [ -n "$wrong" ]; then
  [ -e "$wrong" ] && what="was changed: it is not as in SHA256SUMS" || what="is missing"
  fail "The file '$wrong' $what. Nothing was installed. Copy the bundle again."
fi
[ "$(printf '%s\n' "$verified" | grep -c ': OK$')" -eq "$(wc -l < SHA256SUMS)" ] ||
  fail "SHA256SUMS itself is damaged. Nothing was installed. Copy the bundle again."

# -- A Python that the wheels fit ----------------------------------------------------------------------------------
version=$(about python)
soabi=$(about soabi)
glibc=$(about glibc)
python=""
seen=""
for candidate in ${PYTHON:+"$PYTHON"} "python$version" python3 python; do
  found=$("$candidate" -I -c 'import sysconfig; print(sysconfig.get_config_var("SOABI"))' 2>/dev/null) || continue
  if [ "$found" = "$soabi" ]; then
    python=$candidate
    break
  fi
  seen="$seen $candidate is $found."
done
[ -n "$python" ] || fail "This bundle is for Python $version ($soabi), and there is none.${seen}" \
  "Install one, name it with PYTHON=/path/to/python, or make a bundle with a Python like that of this machine."
if [ -n "$glibc" ]; then
  "$python" -I -c '
import platform, sys
needed = tuple(map(int, sys.argv[1].split(".")))
sys.exit(tuple(map(int, platform.libc_ver()[1].split(".")[:2])) < needed)' "$glibc" ||
    fail "This bundle needs glibc $glibc or later, and this system has" \
      "$("$python" -I -c 'import platform; print(*platform.libc_ver())'). Make it on a system like this one."
fi

# -- The programs --------------------------------------------------------------------------------------------------
case $target/ in
  "$bundle"/*) fail "The folder '$target' lies inside the bundle. Name another one: sh install.sh TARGET." ;;
esac
# The mark says that this script made the folder and did not finish, so that it may begin again there.
mark=$target/.installing
if [ -e "$target" ] && [ ! -e "$mark" ] && [ -n "$(ls -A "$target" 2>/dev/null || echo file)" ]; then
  fail "'$target' exists. Remove it, or name another folder: sh install.sh TARGET."
fi
echo "== Installing $(ls wheels | wc -l | tr -d ' ') wheels into $target"
mkdir -p "$target"
: > "$mark"
rm -rf "$target/bin" "$target/lib" "$target/lib64" "$target/include" "$target/share"
"$python" -I -m venv "$target" || fail "'$python' cannot make an environment. Its modules venv and ensurepip are needed."
# No setting of pip, of this user or of the system, may point it elsewhere.
pip() { PIP_CONFIG_FILE=/dev/null "$target/bin/python" -I -m pip --isolated --disable-pip-version-check "$@"; }
pip install --quiet --no-index --no-deps --no-cache-dir "$bundle"/wheels/*.whl ||
  fail "pip could not install the wheels. Run \`sh install.sh\` again when what it says is mended."

# A build of these three that does not fit torch cannot be imported, and then no model class of Transformers can.
# A text judge needs none of them.
for package in torchvision torchaudio torchcodec; do
  if ls wheels/$package-*.whl >/dev/null 2>&1 && ! "$target/bin/python" -I -c "import $package" 2>/dev/null; then
    echo "== Removing $package, which cannot be imported beside this torch"
    pip uninstall --quiet --yes "$package"
  fi
done

# -- The weights ---------------------------------------------------------------------------------------------------
home=$("$target/bin/python" -I -c 'from offline_summ.weights import default_home; print(default_home().absolute())')
mkdir -p "$home/judges"
for folder in judges/*; do
  [ -d "$folder" ] || continue
  name=${folder#judges/}
  # Judges that are there, and right, stay.
  if awk -v "folder=$folder/" 'index(substr($0, 67), folder) == 1 {
        print substr($0, 1, 66) substr($0, 67 + length(folder)) }' SHA256SUMS |
    (cd "$home/judges/$name" 2>/dev/null && sha256sum -c - >/dev/null 2>&1); then
    echo "== Judge $name is in $home already"
    continue
  fi
  echo "== Copying judge $name into $home"
  arriving=$home/judges/.arriving-$name
  rm -rf "$arriving" "$arriving.old"
  cp -R "$folder" "$arriving"
  [ ! -e "$home/judges/$name" ] || mv "$home/judges/$name" "$arriving.old"
  mv "$arriving" "$home/judges/$name"
  rm -rf "$arriving.old"
done
if [ -d models ]; then
  mkdir -p "$target/models"
  cp models/*.toml "$target/models/"
fi
rm "$mark"

# -- The example ---------------------------------------------------------------------------------------------------
judge=$(about judges)
judge=${judge%% *}
set -- "$bundle/examples/company/source.txt" "$bundle/examples/company/incomplete.txt" --judge "$judge"
number=1
while [ -f "models/$number.toml" ]; do
  set -- "$@" --models "$target/models/$number.toml"
  number=$((number + 1))
done
cd "$started_in"
echo "== Scoring the example with judge $judge (a minute to load it, then minutes on a CPU)"
"$target/bin/offline-summ" score "$@" --airgap auto ||
  fail "offline-summ is installed in '$target', but did not score the example: see above."
echo "== Done: $target/bin/offline-summ score SOURCE SUMMARY --judge $judge"
