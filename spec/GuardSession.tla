----------------------------- MODULE GuardSession -----------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* A lock under a session, on an engine that loses writes which it has      *)
(* answered (Guard.tla): the holder's heartbeats write only the record of   *)
(* the session, and either of the two records may be lost without the       *)
(* other. A server that is cut off goes on for a while, and each process    *)
(* reaches it and its successor by turns. Writes are answered at once.      *)
EXTENDS Integers

CONSTANTS
    Lease,      \* as in Guard.tla
    Waits,      \* Takes and Opens there
    CutOff,     \* likewise
    MaxLife,
    MaxBeats,
    Wrong

VARIABLES
    server,     \* s: what it keeps; age: since its successor began
    replica,
    now,        \* the primary, and the highest life
    holder,     \* life: in which its session was opened (0: it was not); on: the session goes on;
                \* lock: it was granted the lock; age: of its latest heartbeat
    contender   \* age: since its grant; seen: for how long it has known each life; lock: the life in which
                \* it has read that the holder has the lock; sess: what it has read of the session

vars == <<server, replica, now, holder, contender>>

Servers == 1..MaxLife
Min(a, b) == IF a < b THEN a ELSE b

\* sess: the state of the session, opened: the life in which it was opened, beat: its latest; lock: who has it;
\* open: the life that is open.
Empty == [sess |-> "absent", opened |-> 0, beat |-> 0, lock |-> "none", open |-> 1]

\* age: for how long it has been so; proved: and a later reply has shown it still.
Unread == [st |-> "unread", life |-> 0, beat |-> 0, age |-> 0, proved |-> 0]

Init ==
    /\ server = [i \in Servers |-> [s |-> Empty, age |-> 0]]
    /\ replica = Empty
    /\ now = 1
    /\ holder = [life |-> 0, on |-> FALSE, beat |-> 0, lock |-> FALSE, age |-> 0]
    /\ contender = [age |-> Lease, seen |-> [i \in Servers |-> -1], lock |-> 0, sess |-> Unread]

Up(i) == i = now \/ (i < now /\ server[i].age < CutOff)

Stores(i, s) ==
    /\ server' = [server EXCEPT ![i].s = s]
    /\ IF i = now THEN replica' \in {replica, s} ELSE UNCHANGED replica
    /\ UNCHANGED now

Answers == UNCHANGED <<server, replica, now>>

HolderBelieves == holder.on /\ holder.lock /\ holder.age < Lease
ContenderBelieves == contender.age < Lease

-----------------------------------------------------------------------------
(* The holder.                                                              *)

OpenSession(i) ==
    /\ holder.life = 0
    /\ Stores(i, [server[i].s EXCEPT !.sess = "alive", !.opened = i, !.beat = 1])
    /\ holder' = [holder EXCEPT !.life = i, !.on = TRUE, !.beat = 1, !.age = 0]
    /\ UNCHANGED contender

\* A session ends with a grant by another server than its own.
Claim(i) ==
    LET fits == i = holder.life \/ "granted elsewhere" \in Wrong IN
    /\ holder.on /\ holder.age < Lease /\ ~holder.lock
    /\ server[i].s.lock = "none" /\ server[i].s.open = i
    /\ Stores(i, [server[i].s EXCEPT !.lock = "holder"])
    /\ holder' = [holder EXCEPT !.lock = fits, !.on = fits]
    /\ UNCHANGED contender

\* The session ends with the life in which it was opened.
Has(i) == server[i].s.sess = "alive" /\ server[i].s.beat = holder.beat
Fits(i) == Has(i) /\ (server[i].s.opened = i \/ "survives" \in Wrong)

Heartbeat(i) ==
    /\ holder.on /\ holder.age < Lease /\ holder.beat < MaxBeats /\ Fits(i)
    /\ Stores(i, [server[i].s EXCEPT !.beat = @ + 1])
    /\ holder' = [holder EXCEPT !.beat = @ + 1, !.age = 0]
    /\ UNCHANGED contender

Ends(i) ==
    /\ holder.on
    /\ holder' = [holder EXCEPT !.on = FALSE, !.lock = FALSE]
    /\ IF Has(i) THEN Stores(i, [server[i].s EXCEPT !.sess = "closed"]) ELSE Answers
    /\ UNCHANGED contender

-----------------------------------------------------------------------------
(* The contender.                                                           *)

Sees(i) == IF contender.seen[i] < 0 THEN [contender.seen EXCEPT ![i] = 0] ELSE contender.seen

\* What was known of the session before the lock was read under it does not count.
ReadLock(i) ==
    LET held == server[i].s.lock = "holder" IN
    /\ contender' = [contender EXCEPT
            !.seen = Sees(i), !.lock = IF held THEN i ELSE 0, !.sess = IF held /\ @.st # "unread" /\ contender.lock # 0 THEN @ ELSE Unread]
    /\ Answers /\ UNCHANGED holder

Reads(i, st, life, beat) ==
    LET was == contender.sess IN
    contender' = [contender EXCEPT !.seen = Sees(i), !.sess =
        IF was.st = st /\ was.life = life /\ was.beat = beat
        THEN [was EXCEPT !.proved = was.age]
        ELSE [st |-> st, life |-> life, beat |-> beat, age |-> 0, proved |-> 0]]

\* A reply without a record names no life.
ReadSession(i) ==
    /\ contender.lock # 0
    /\ IF server[i].s.sess = "absent" THEN Reads(i, "absent", 0, 0)
       ELSE Reads(i, server[i].s.sess, i, IF server[i].s.sess = "alive" THEN server[i].s.beat ELSE 0)
    /\ Answers /\ UNCHANGED holder

\* A request to a session of another life is refused, and shows the session closed.
Ask(i) ==
    /\ contender.sess.st = "alive"
    /\ server[i].s.sess = "alive" /\ server[i].s.opened # i
    /\ Reads(i, "closed", i, 0)
    /\ Answers /\ UNCHANGED holder

\* A process that has seen no heartbeat for long closes the session.
Close(i) ==
    LET of == contender.sess IN
    /\ of.st = "alive" /\ (of.life = i \/ "unbound" \in Wrong) /\ of.age >= Waits
    /\ server[i].s.sess = "alive" /\ server[i].s.beat = of.beat
    /\ Stores(i, [server[i].s EXCEPT !.sess = "closed"])
    /\ Reads(i, "closed", i, 0)
    /\ UNCHANGED holder

Ended ==
    LET of == contender.sess IN
    \/ of.st = "closed" /\ (of.life = contender.lock \/ "ended elsewhere" \in Wrong)
    \/ of.st = "absent" /\ (of.proved >= Waits \/ "absent at once" \in Wrong)

\* A takeover is bound to the life in which the lock was read.
Take(i) ==
    LET s == server[i].s IN
    /\ ~ContenderBelieves
    /\ s.open = i \/ contender.seen[i] >= Waits
    /\ \/ s.lock = "none"
       \/ s.lock = "holder" /\ contender.lock # 0 /\ (contender.lock = i \/ "unbound" \in Wrong) /\ Ended
    /\ Stores(i, [s EXCEPT !.lock = "contender", !.open = i])
    /\ contender' = [contender EXCEPT !.age = 0, !.seen = Sees(i), !.lock = 0, !.sess = Unread]
    /\ UNCHANGED holder

-----------------------------------------------------------------------------
FailOver ==
    /\ now < MaxLife
    /\ now' = now + 1
    /\ server' = [server EXCEPT ![now + 1].s = replica]
    /\ UNCHANGED <<replica, holder, contender>>

Tick ==
    /\ server' = [i \in Servers |-> [server[i] EXCEPT !.age = IF i < now THEN Min(@ + 1, CutOff) ELSE 0]]
    /\ holder' = [holder EXCEPT !.age = Min(@ + 1, Lease)]
    /\ contender' = [contender EXCEPT
            !.age = Min(@ + 1, Lease),
            !.seen = [i \in Servers |-> IF @[i] < 0 THEN -1 ELSE Min(@[i] + 1, Waits)],
            !.sess.age = IF contender.sess.st = "unread" THEN 0 ELSE Min(@ + 1, Waits)]
    /\ UNCHANGED <<replica, now>>

Step(i) ==
    \/ OpenSession(i) \/ Claim(i) \/ Heartbeat(i) \/ Ends(i)
    \/ ReadLock(i) \/ ReadSession(i) \/ Ask(i) \/ Close(i) \/ Take(i)

Next == (\E i \in Servers : Up(i) /\ Step(i)) \/ FailOver \/ Tick
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
OneHolder == ~(HolderBelieves /\ ContenderBelieves)

\* Reached: reached-guard-session.cfg, reached-guard-session-absent.cfg.
NeverNext == ~(ContenderBelieves /\ now > 1 /\ replica.opened = 1 /\ replica.beat > 1 /\ holder.lock)
NeverAbsent == ~(contender.sess.st = "absent" /\ contender.sess.proved >= Waits /\ contender.lock # 0)
=============================================================================
