# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

# Completion of the command tenure in fish:  tenure completion fish | source

function __tenure_complete
    set -l words (commandline -opc)
    $words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null
end

function __tenure_behind
    contains -- -- (commandline -opc)
end

complete -c tenure -f
complete -c tenure -n 'not __tenure_behind' -a '(__tenure_complete)'
# Behind "--" stands a command of its own.
complete -c tenure -n __tenure_behind -F -a '(__fish_complete_subcommand --fcs-skip=(contains -i -- -- (commandline -opc)))'
