#!/bin/sh
# Runs the tests of the CUDA backend on a machine with an NVIDIA GPU; it needs neither Rust nor a network. `cargo xtask gpu-tests FOLDER` packs what is
# to be carried there.
#   sh gpu-tests.sh [TEST...]
# Tests of real models look for them in the folder BLUESHIFT_MODELS. Exits with 1 where a test failed.
cd "$(dirname "$0")" || exit 1
export BLUESHIFT_CUDA_TESTS=gpu
failed=0
./blueshift-cuda selftest || failed=1
for test in ${@:-$(ls tests)}; do
    echo "=== $test"
    # What fails is shown, of what passes the sum and what was left out.
    if ./tests/"$test" --include-ignored >"/tmp/$test.log" 2>&1; then
        grep -E "^test result|^ignored" "/tmp/$test.log"
    else
        failed=1
        cat "/tmp/$test.log"
    fi
done
[ $failed = 0 ] && echo "all passed"
exit $failed
