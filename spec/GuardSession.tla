----------------------------- MODULE GuardSession -----------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* A lock under a session, on an engine that loses writes which it has      *)
(* answered (Guard.tla): the holder's heartbeats write only the record of   *)
(* the session, and the claim of the lock may be lost without them. Writes  *)
(* are answered at once.                                                    *)
EXTENDS Integers

CONSTANTS
    Lease,      \* as in Guard.tla
    Waits,      \* Takes and Opens there
    MaxLife,
    MaxBeats,
    Wrong

VARIABLES
    store,
    replica,
    life,
    holder,     \* on: its session goes on; lock: it was granted the lock; age: of its latest heartbeat
    contender   \* age: since its grant; seen, since: a life, and how long ago it first saw that;
                \* beat, poll: a beat of the session, and how long ago

vars == <<store, replica, life, holder, contender>>

Min(a, b) == IF a < b THEN a ELSE b

\* opened: the life in which the session was opened (0: it was not), beat: its latest; lock: who has it;
\* open: the life that is open.
Empty == [opened |-> 0, beat |-> 0, lock |-> "none", open |-> 1]

Init ==
    /\ store = Empty
    /\ replica = Empty
    /\ life = 1
    /\ holder = [on |-> FALSE, beat |-> 0, lock |-> FALSE, age |-> 0]
    /\ contender = [age |-> Lease, seen |-> 1, since |-> 0, beat |-> 0, poll |-> 0]

Stores(s) == store' = s /\ replica' \in {replica, s} /\ UNCHANGED life

HolderBelieves == holder.on /\ holder.lock /\ holder.age < Lease
ContenderBelieves == contender.age < Lease

-----------------------------------------------------------------------------
(* The holder.                                                              *)

OpenSession ==
    /\ holder.beat = 0
    /\ Stores([store EXCEPT !.opened = life, !.beat = 1])
    /\ holder' = [holder EXCEPT !.on = TRUE, !.beat = 1, !.age = 0]
    /\ UNCHANGED contender

Claim ==
    /\ holder.on /\ holder.age < Lease /\ ~holder.lock
    /\ store.lock = "none" /\ store.open = life
    /\ Stores([store EXCEPT !.lock = "holder"])
    /\ holder' = [holder EXCEPT !.lock = TRUE]
    /\ UNCHANGED contender

\* The session ends with the life in which it was opened.
Fits == store.beat = holder.beat /\ store.opened # 0 /\ (store.opened = life \/ "survives" \in Wrong)

Heartbeat ==
    /\ holder.on /\ holder.age < Lease /\ holder.beat < MaxBeats /\ Fits
    /\ Stores([store EXCEPT !.beat = @ + 1])
    /\ holder' = [holder EXCEPT !.beat = @ + 1, !.age = 0]
    /\ UNCHANGED contender

Closed ==
    /\ holder.on /\ ~Fits
    /\ holder' = [holder EXCEPT !.on = FALSE, !.lock = FALSE]
    /\ UNCHANGED <<store, replica, life, contender>>

-----------------------------------------------------------------------------
(* The contender.                                                           *)

Poll ==
    /\ contender' = [contender EXCEPT
            !.seen = life, !.since = IF contender.seen = life THEN @ ELSE 0,
            !.beat = store.beat, !.poll = IF contender.beat = store.beat THEN @ ELSE 0]
    /\ contender' # contender
    /\ UNCHANGED <<store, replica, life, holder>>

MayOpen == contender.seen = life /\ contender.since >= Waits
Take ==
    /\ ~ContenderBelieves
    /\ store.open = life \/ MayOpen
    /\ store.lock = "none" \/ (store.lock = "holder" /\ contender.beat = store.beat /\ contender.poll >= Waits)
    /\ Stores([store EXCEPT !.lock = "contender", !.open = life])
    /\ contender' = [contender EXCEPT !.age = 0]
    /\ UNCHANGED holder

-----------------------------------------------------------------------------
FailOver ==
    /\ life < MaxLife
    /\ life' = life + 1 /\ store' = replica
    /\ UNCHANGED <<replica, holder, contender>>

Tick ==
    /\ holder' = [holder EXCEPT !.age = Min(@ + 1, Lease)]
    /\ contender' = [contender EXCEPT
            !.age = Min(@ + 1, Lease), !.since = Min(@ + 1, Waits), !.poll = Min(@ + 1, Waits)]
    /\ UNCHANGED <<store, replica, life>>

Next == OpenSession \/ Claim \/ Heartbeat \/ Closed \/ Poll \/ Take \/ FailOver \/ Tick
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
OneHolder == ~(HolderBelieves /\ ContenderBelieves)

\* Reached: reached-guard-session.cfg.
NeverNext == ~(ContenderBelieves /\ life > 1 /\ replica.opened = 1 /\ replica.beat > 1 /\ holder.lock)
=============================================================================
