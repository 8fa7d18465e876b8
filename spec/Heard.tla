-------------------------------- MODULE Heard --------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* Heartbeats that are told of: a holder says in messages that it has       *)
(* confirmed a heartbeat, whoever reads the store says so of any beat that  *)
(* it finds there, and one that waits puts looks off for it. README.md      *)
(* explains it to those who do not read TLA+.                               *)
(*                                                                          *)
(* Time is counted in the looks of one that waits, and all clocks run       *)
(* right: module Tenure has those that do not. A look takes no time.        *)
EXTENDS Integers

CONSTANTS
    L,        \* the lease
    H,        \* the heartbeat period: what a message is worth
    MaxBeat,  \* how many heartbeats there are
    MaxTime,
    Forged,   \* whether anybody forges messages
    Most,     \* how long after the last beat the lock is taken, at most
    Wrong

VARIABLES
    now,
    store,  \* the beat in the record, and since when it is there
    hold,   \* the holder
    wait,   \* the one that waits
    taken   \* it has the lock

vars == <<now, store, hold, wait, taken>>

Half == L \div 2
Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
Never == -1

(* A holder: it lives; made is its latest beat, out says that a heartbeat    *)
(* with it is under way, sent at outAt; it counts from sent, the instant     *)
(* before the write that is confirmed last; told is the beat of that, if it  *)
(* may be told of now.                                                       *)

Believes == hold.live /\ now < hold.sent + L

\* Whose beats may be named: those that are stored, or were. A process that tells of a beat
\* which it has made and not sent names others.
Nameable == 0..(IF "told early" \in Wrong THEN hold.made ELSE store.beat)

-----------------------------------------------------------------------------
(* The holder.                                                               *)

\* The clock is read, and then the beat is made; the mistake makes it before.
Make ==
    /\ "told early" \in Wrong /\ hold.live /\ ~hold.out /\ hold.made = store.beat /\ hold.made < MaxBeat
    /\ hold' = [hold EXCEPT !.made = @ + 1]
    /\ UNCHANGED <<now, store, wait, taken>>
Send ==
    /\ hold.live /\ ~hold.out
    /\ IF "told early" \in Wrong THEN hold.made > store.beat ELSE hold.made < MaxBeat
    /\ hold' = [hold EXCEPT !.made = IF "told early" \in Wrong THEN @ ELSE @ + 1, !.out = TRUE, !.outAt = now, !.told = Never]
    /\ UNCHANGED <<now, store, wait, taken>>

\* Now, later, or never.
Apply ==
    /\ hold.out /\ store.beat < hold.made /\ ~taken
    /\ store' = [beat |-> hold.made, at |-> now]
    /\ UNCHANGED <<now, hold, wait, taken>>

Confirm ==
    /\ hold.live /\ hold.out /\ store.beat = hold.made /\ ~taken
    /\ hold' = [hold EXCEPT !.out = FALSE, !.sent = hold.outAt, !.told = hold.made]
    /\ UNCHANGED <<now, store, wait, taken>>

\* The mistake: a message of the one that waits, which names the beat, counts as an answer.
\* It knows the beat from the holder itself, which tells of what is not confirmed.
Circle ==
    /\ "wait confirms" \in Wrong /\ hold.live /\ hold.out
    /\ hold' = [hold EXCEPT !.sent = hold.outAt]
    /\ UNCHANGED <<now, store, wait, taken>>

Die == hold.live /\ hold' = [hold EXCEPT !.live = FALSE] /\ UNCHANGED <<now, store, wait, taken>>

-----------------------------------------------------------------------------
(* The one that waits: shown is the beat that a look has shown last, counted *)
(* from since; looked is when that was. at says when a beat was told of      *)
(* first. Until off looks are put off.                                       *)

Dated == IF wait.at[store.beat] # Never THEN wait.at[store.beat] ELSE now
Look ==
    /\ ~taken
    /\ wait' = [wait EXCEPT
        !.shown = store.beat, !.looked = now,
        !.since = IF store.beat = wait.shown THEN @ ELSE Dated]
    /\ UNCHANGED <<now, store, hold, taken>>

\* When a message has come that names a beat, or none that anybody knows.
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

\* The swap fits what was shown; the mistake swaps from what was heard of.
Take ==
    /\ ~taken /\ Dead
    /\ wait.shown = store.beat \/ ("swaps what it heard" \in Wrong /\ wait.at[store.beat] # Never)
    /\ taken' = TRUE
    /\ UNCHANGED <<now, store, hold, wait>>

-----------------------------------------------------------------------------
\* A look is due, or the lock is to be taken: no time passes before.
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
(* What must hold. README.md says each in words.                             *)

OneHolder == ~(taken /\ Believes)

Soon == taken \/ now <= store.at + Most

-----------------------------------------------------------------------------
(* What must be reached, or what holds says little: each of these must be    *)
(* refuted, by a configuration that says it in words.                        *)

NeverDated == ~(taken /\ wait.since < wait.looked /\ wait.at[wait.shown] = wait.since)
NeverPutOff == ~(~taken /\ now > wait.looked + 1)
=============================================================================
