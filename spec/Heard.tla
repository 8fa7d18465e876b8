-------------------------------- MODULE Heard --------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* A holder announces that a heartbeat is confirmed, and a waiter defers    *)
(* reads for it. Anyone who can read the store can announce any beat there. *)
(* Time is counted in reads of the waiter. All clocks run right.            *)
EXTENDS Integers

CONSTANTS
    L,
    H,        \* the heartbeat period: how long an announcement defers reads
    MaxBeat,  \* the number of heartbeats
    MaxTime,
    Forged,   \* TRUE: messages are forged
    Most,     \* the bound of Soon: the time from the last beat to the takeover
    Wrong

VARIABLES
    now,
    store,  \* the beat in the record, and when it was written
    hold,
    wait,
    taken   \* TRUE: the waiter has the lock

vars == <<now, store, hold, wait, taken>>

Half == L \div 2
Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
Never == -1

(* The holder: made is its latest beat; out: its heartbeat is in flight      *)
(* since outAt. The lease counts from sent, before the confirmed write.      *)
(* told: the confirmed beat, until announced.                                *)

Believes == hold.live /\ now < hold.sent + L

Nameable == 0..(IF "told early" \in Wrong THEN hold.made ELSE store.beat)

-----------------------------------------------------------------------------
(* The holder.                                                               *)

Make ==
    /\ "told early" \in Wrong /\ hold.live /\ ~hold.out /\ hold.made = store.beat /\ hold.made < MaxBeat
    /\ hold' = [hold EXCEPT !.made = @ + 1]
    /\ UNCHANGED <<now, store, wait, taken>>
Send ==
    /\ hold.live /\ ~hold.out
    /\ IF "told early" \in Wrong THEN hold.made > store.beat ELSE hold.made < MaxBeat
    /\ hold' = [hold EXCEPT !.made = IF "told early" \in Wrong THEN @ ELSE @ + 1, !.out = TRUE, !.outAt = now, !.told = Never]
    /\ UNCHANGED <<now, store, wait, taken>>

Apply ==
    /\ hold.out /\ store.beat < hold.made /\ ~taken
    /\ store' = [beat |-> hold.made, at |-> now]
    /\ UNCHANGED <<now, hold, wait, taken>>

Confirm ==
    /\ hold.live /\ hold.out /\ store.beat = hold.made /\ ~taken
    /\ hold' = [hold EXCEPT !.out = FALSE, !.sent = hold.outAt, !.told = hold.made]
    /\ UNCHANGED <<now, store, wait, taken>>

\* The mistake: a message of the waiter counts as a reply.
Circle ==
    /\ "wait confirms" \in Wrong /\ hold.live /\ hold.out
    /\ hold' = [hold EXCEPT !.sent = hold.outAt]
    /\ UNCHANGED <<now, store, wait, taken>>

Die == hold.live /\ hold' = [hold EXCEPT !.live = FALSE] /\ UNCHANGED <<now, store, wait, taken>>

-----------------------------------------------------------------------------
(* The waiter: shown is the beat last read, at looked, counted from since.   *)
(* at: when each beat was first announced. Reads are deferred until off.     *)

Dated == IF wait.at[store.beat] # Never THEN wait.at[store.beat] ELSE now
Look ==
    /\ ~taken
    /\ wait' = [wait EXCEPT
        !.shown = store.beat, !.looked = now,
        !.since = IF store.beat = wait.shown THEN @ ELSE Dated]
    /\ UNCHANGED <<now, store, hold, taken>>

\* A message announces a beat, or (HearNone) one that never was.
Noted(b) == IF "dated from the wait" \in Wrong THEN wait.looked ELSE now
Hear(b) ==
    /\ ~taken /\ b \in Nameable
    /\ Forged \/ (b = hold.told /\ hold.live)
    /\ LET known == b <= wait.shown \/ wait.at[b] # Never IN
       wait' = [wait EXCEPT
        !.at[b] = IF known THEN @ ELSE Noted(b),
        !.last = IF "silence" \in Wrong THEN now ELSE 0,
        !.since = IF "a look" \in Wrong THEN now ELSE @,
        !.off = IF known /\ "known" \notin Wrong THEN @ ELSE now + H + 1]
    /\ hold' = [hold EXCEPT !.told = IF Forged THEN @ ELSE Never]
    /\ UNCHANGED <<now, store, taken>>
HearNone ==
    /\ Forged /\ ~taken /\ wait.off # now + H + 1
    /\ wait' = [wait EXCEPT !.off = now + H + 1, !.last = IF "silence" \in Wrong THEN now ELSE 0]
    /\ UNCHANGED <<now, store, hold, taken>>

Count == IF "silence" \in Wrong THEN wait.last + L ELSE wait.since + L
Dead == now >= Count /\ (("known" \in Wrong) => now >= wait.off)

Take ==
    /\ ~taken /\ Dead
    /\ wait.shown = store.beat \/ ("swaps what it heard" \in Wrong /\ wait.at[store.beat] # Never)
    /\ taken' = TRUE
    /\ UNCHANGED <<now, store, hold, wait>>

-----------------------------------------------------------------------------
Quiet == IF "known" \in Wrong THEN wait.off ELSE Min(wait.off, Min(wait.looked + Half, wait.since + L))
Due ==
    \/ now >= Max(wait.looked + 1, Quiet)
    \/ Dead /\ (wait.shown = store.beat \/ wait.looked < now)

Tick ==
    /\ now < MaxTime /\ (taken \/ ~Due)
    /\ now' = now + 1
    /\ UNCHANGED <<store, hold, wait, taken>>

Init ==
    /\ now = 0
    /\ store = [beat |-> 0, at |-> 0]
    /\ hold = [live |-> TRUE, made |-> 0, out |-> FALSE, outAt |-> 0, sent |-> 0, told |-> Never]
    /\ wait = [shown |-> 0, since |-> 0, looked |-> 0, off |-> 0, last |-> 0, at |-> [b \in 0..MaxBeat |-> Never]]
    /\ taken = FALSE

Next ==
    \/ Make \/ Send \/ Apply \/ Confirm \/ Circle \/ Die
    \/ Look \/ HearNone \/ Take \/ Tick
    \/ \E b \in 0..MaxBeat : Hear(b)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties: README.md.                                                    *)

OneHolder == ~(taken /\ Believes)

Soon == taken \/ now <= store.at + Most

-----------------------------------------------------------------------------
(* Reached: reached-*.cfg.                                                   *)

NeverDated == ~(taken /\ wait.since < wait.looked /\ wait.at[wait.shown] = wait.since)
NeverPutOff == ~(~taken /\ now > wait.looked + 1)
=============================================================================
