---------------------------- MODULE RemoteSessions ----------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* Clients of the lock service hold a lock under a session: they make the   *)
(* beats of both. Stateless replicas carry out each call at any time, again *)
(* and again, from the records alone. A swap names the version that it      *)
(* replaces, so a late one is a replica that acts late.                     *)
EXTENDS Integers, TLC

CONSTANTS
    Clients,
    Others,      \* a program that takes the lock as it can, or none: then clients contend
    None,
    Lease, DriftNum, DriftDen, Tick, MaxToken,
    MaxOpens,    \* sessions of a client
    MaxAcquires, \* acquires of a client that are carried out
    MaxBeats,    \* heartbeats of a session
    Uses, Wrong

VARIABLES
    lock,
    ses,         \* the sessions' records, by id
    acq,         \* acquires, and the calls under their terms
    cli,
    view         \* what each contender has seen

vars == <<lock, ses, acq, cli, view>>

-----------------------------------------------------------------------------
(* Time, as in Tenure.tla, without a grace.                                  *)

Shortest(d) == (d * DriftDen) \div (DriftDen + DriftNum)
Longest(d)  == (d * DriftDen + DriftDen - DriftNum - 1) \div (DriftDen - DriftNum)
Window == (Lease * (DriftDen - DriftNum)) \div (DriftDen + DriftNum)

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Old == Max(Longest(Window), Shortest(Lease))
Aged(a, d) == IF a < 0 THEN a ELSE Min(a + d, Old)
Over(age) == age >= Longest(Window)

-----------------------------------------------------------------------------
(* An acquire is <<client, number>>. A beat of the lock is the acquire and a  *)
(* count (own, n); an attachment makes beat n+1 of beat n, as a heartbeat     *)
(* does, and adds the session. A session's beat is a count.                   *)

Ids == Clients \X (1..MaxOpens)
Acquires == Clients \X (1..MaxAcquires)

NoLock == [st |-> "absent", tok |-> 0, own |-> None, n |-> 0, ses |-> None]
NoSession == [st |-> "absent", n |-> 0, beats |-> 0, closes |-> {}] \* with the calls that were sent
Gone(r) == r.st \in {"absent", "deleted"}

(*   sent   a replica may carry it out; ans: the client may still get that    *)
(*   beats  heartbeats sent                                                   *)
(*   joins  the attachments sent: the session, and the beat before            *)
(*   seen   those whose session a replica has seen open                       *)
(*   rel    the releases sent                                                 *)
Unsent == [sent |-> FALSE, tok |-> 0, ans |-> FALSE, beats |-> 0, joins |-> {}, seen |-> {}, rel |-> {}]

(*   up     the session: none; opening; open: a heartbeat was confirmed; over *)
(*   ses    its id; sn: its confirmed beat; born: the age of the opening      *)
(*   at     the lock: idle; wait; try: has a grant; own: a heartbeat of the    *)
(*          lock was confirmed; attach: it is being attached; under: that was    *)
(*          confirmed                                                         *)
(*   of, n  the acquire and the confirmed beat; under: the session            *)
(*   call, first, since, ans                                                  *)
(*          of the session: a heartbeat is in progress; the ages of its first *)
(*          sending and of the confirmed one; its answer is in flight         *)
(*   do, sent, age, got                                                       *)
(*          the same of the lock                                              *)
Fresh == [up |-> "none", ses |-> None, sn |-> 0, born |-> Old, call |-> FALSE, first |-> 0, since |-> Old, ans |-> FALSE,
          at |-> "idle", of |-> None, n |-> 0, under |-> None, do |-> FALSE, sent |-> 0, age |-> Old, got |-> FALSE]

Lives(m) == m.up = "open" /\ ~Over(m.since)
Believes(c) ==
    LET m == cli[c] IN
    CASE m.at = "own" -> ~Over(m.age)
      [] m.at = "attach" ->
            CASE "holds by its own deadline" \in Wrong -> ~Over(m.age)
              [] "unconfirmed" \in Wrong -> Lives(m) /\ m.under = m.ses
              [] OTHER -> ~Over(m.age) /\ Lives(m) /\ m.under = m.ses
      [] m.at = "under" ->
            IF "counts from the attachment" \in Wrong THEN ~Over(m.age) ELSE Lives(m) /\ m.under = m.ses
      [] OTHER -> FALSE

-----------------------------------------------------------------------------
Idle(m) == [m EXCEPT !.at = "idle", !.of = None, !.n = 0, !.under = None, !.do = FALSE, !.sent = 0, !.age = Old, !.got = FALSE]
Ended(m) == [m EXCEPT !.up = "over", !.born = Old, !.call = FALSE, !.first = 0, !.since = Old, !.ans = FALSE]

Contenders == IF Others = {} THEN Clients ELSE Others
Of(t) == IF Others = {} THEN t[1] ELSE CHOOSE o \in Others : TRUE

Becomes(c, m) == cli' = [cli EXCEPT ![c] = m]
Called(t, a) == acq' = [acq EXCEPT ![t] = a]

\* A view of a session, when it has no age.
Unseen == -1
Absent == -2 \* no record, by a strong read after the lock was seen
Shut   == -3

\* After a write to the lock, all views of it are old.
Writes(r) ==
    /\ lock' = r
    /\ view' = [c \in Contenders |-> [view[c] EXCEPT !.saw = Unseen]]

WritesSession(s, r) ==
    /\ ses' = [ses EXCEPT ![s] = r]
    /\ view' = [c \in Contenders |-> [view[c] EXCEPT !.knows[s] = IF @ >= 0 THEN Unseen ELSE @]]

-----------------------------------------------------------------------------
(* Sessions.                                                                  *)

Open(c) ==
    LET m == cli[c]
        n == IF m.ses = None THEN 1 ELSE m.ses[2] + 1 IN
    /\ m.up \in {"none", "over"} /\ n <= MaxOpens
    /\ Becomes(c, [Ended(m) EXCEPT !.up = "opening", !.ses = <<c, n>>, !.sn = 0, !.born = 0])
    /\ UNCHANGED <<lock, ses, acq, view>>

\* A late duplicate opens a deleted one.
Opened(s) == LET m == cli[s[1]] IN m.ses # None /\ m.ses[2] >= s[2]
OpenApply(s) ==
    /\ Opened(s) /\ Gone(ses[s])
    /\ WritesSession(s, [ses[s] EXCEPT !.st = "alive", !.n = 0])
    /\ UNCHANGED <<lock, acq, cli>>

Beat(c) ==
    LET m == cli[c] IN
    /\ m.up = "opening" \/ Lives(m)
    /\ ~m.call /\ m.sn < MaxBeats
    /\ Becomes(c, [m EXCEPT !.call = TRUE, !.first = 0])
    /\ ses' = [ses EXCEPT ![m.ses].beats = Max(@, m.sn + 1)]
    /\ UNCHANGED <<lock, acq, view>>

Answered(s, n) ==
    LET m == cli[s[1]] IN
    IF m.ses = s /\ m.call /\ m.sn = n THEN [cli EXCEPT ![s[1]].ans = TRUE] ELSE cli

BeatApply(s, n) ==
    /\ n < ses[s].beats /\ ses[s].st = "alive" /\ ses[s].n = n
    /\ WritesSession(s, [ses[s] EXCEPT !.n = n + 1])
    /\ cli' = Answered(s, n)
    /\ UNCHANGED <<lock, acq>>

BeatAgain(s, n) ==
    /\ n < ses[s].beats /\ ses[s].st = "alive" /\ ses[s].n = n + 1
    /\ cli' = Answered(s, n) /\ cli' # cli
    /\ UNCHANGED <<lock, ses, acq, view>>

\* The first one counts only within a lease of the opening: later, a duplicate of that may
\* have opened the session once more, after it was closed and deleted.
Confirm(c) ==
    LET m == cli[c]
        from == IF "counts from the answer" \in Wrong THEN 0 ELSE m.first
        final == IF m.up = "open" THEN Over(m.since) ELSE Over(m.born) /\ "first beat at any time" \notin Wrong IN
    /\ m.ans
    /\ Becomes(c, [m EXCEPT !.up = "open", !.born = Old, !.sn = @ + 1, !.call = FALSE, !.first = 0, !.ans = FALSE,
                            !.since = IF final \/ Over(from) THEN Old ELSE from])
    /\ UNCHANGED <<lock, ses, acq, view>>

Lose(c) ==
    LET m == cli[c] IN
    /\ m.call /\ ~(ses[m.ses].st = "alive" /\ ses[m.ses].n \in {m.sn, m.sn + 1})
    /\ Becomes(c, Ended(m))
    /\ UNCHANGED <<lock, ses, acq, view>>

Expire(c) ==
    LET m == cli[c] IN
    /\ \/ Lives(m) /\ m.since >= Shortest(Window) /\ Becomes(c, [m EXCEPT !.since = Old])
       \/ m.up = "opening" /\ ~Over(m.born) /\ m.born >= Shortest(Window) /\ Becomes(c, [m EXCEPT !.born = Old])
       \/ m.at \in {"own", "attach"} /\ ~Over(m.age) /\ m.age >= Shortest(Window) /\ Becomes(c, [m EXCEPT !.age = Old])
    /\ UNCHANGED <<lock, ses, acq, view>>

Close(c) ==
    LET m == cli[c] IN
    /\ m.up \in {"opening", "open"} /\ m.sn \notin ses[m.ses].closes
    /\ Becomes(c, IF "acts after closing" \in Wrong THEN m ELSE Ended(m))
    /\ ses' = [ses EXCEPT ![m.ses].closes = @ \cup {m.sn} \cup IF m.call THEN {m.sn + 1} ELSE {}]
    /\ UNCHANGED <<lock, acq, view>>

CloseApply(s, n) ==
    /\ n \in ses[s].closes /\ ses[s].st = "alive" /\ ses[s].n = n
    /\ WritesSession(s, [ses[s] EXCEPT !.st = "closed"])
    /\ UNCHANGED <<lock, acq, cli>>

Delete(s) ==
    /\ "delete" \in Uses /\ ses[s].st = "closed"
    /\ WritesSession(s, [ses[s] EXCEPT !.st = "deleted"])
    /\ UNCHANGED <<lock, acq, cli>>

-----------------------------------------------------------------------------
(* Contenders.                                                                *)

Look(c) ==
    /\ lock.st = "held" /\ view[c].saw = Unseen
    /\ view' = [view EXCEPT ![c].saw = 0,
                            ![c].knows = [s \in Ids |-> IF @[s] = Absent THEN Unseen ELSE @[s]]]
    /\ UNCHANGED <<lock, ses, acq, cli>>

Peek(c, s) ==
    LET is == IF Gone(ses[s]) THEN Absent
              ELSE IF ses[s].st = "closed" THEN Shut
              ELSE IF view[c].knows[s] >= 0 THEN view[c].knows[s] ELSE 0 IN
    /\ lock.st = "held" /\ lock.ses = s /\ view[c].saw # Unseen
    /\ view[c].knows[s] # is
    /\ view' = [view EXCEPT ![c].knows[s] = is]
    /\ UNCHANGED <<lock, ses, acq, cli>>

CloseDead(c, s) ==
    /\ lock.st = "held" /\ lock.ses = s /\ ses[s].st = "alive" /\ view[c].knows[s] >= Shortest(Lease)
    /\ WritesSession(s, [ses[s] EXCEPT !.st = "closed"])
    /\ UNCHANGED <<lock, acq, cli>>

Dead(v) ==
    /\ v.saw # Unseen
    /\ IF lock.ses = None THEN v.saw >= Shortest(Lease) ELSE v.knows[lock.ses] \in {Absent, Shut}

-----------------------------------------------------------------------------
(* The lock.                                                                  *)

Unused(c) == {t \in Acquires : t[1] = c /\ ~acq[t].sent /\ (t[2] > 1 => acq[<<c, t[2] - 1>>].sent)}

Acquire(c) ==
    /\ cli[c].at = "idle"
    /\ \E t \in Unused(c) : Called(t, [acq[t] EXCEPT !.sent = TRUE])
    /\ Becomes(c, [cli[c] EXCEPT !.at = "wait"])
    /\ UNCHANGED <<lock, ses, view>>

\* The acquire is delivered once more.
Double(c) ==
    /\ "replay" \in Uses
    /\ \E t \in Unused(c) : t[2] > 1 /\ Called(t, [acq[t] EXCEPT !.sent = TRUE])
    /\ UNCHANGED <<lock, ses, cli, view>>

Grant(t) ==
    /\ acq[t].sent /\ acq[t].tok = 0 /\ lock.tok < MaxToken
    /\ lock.st # "held" \/ (lock.own \notin Others /\ Dead(view[Of(t)]))
    /\ Writes([st |-> "held", tok |-> lock.tok + 1, own |-> t, n |-> 0, ses |-> None])
    /\ Called(t, [acq[t] EXCEPT !.tok = lock.tok + 1, !.ans = TRUE])
    /\ UNCHANGED <<ses, cli>>

\* Another program acts from its grant until its record is gone.
Take(o) ==
    /\ lock.tok < MaxToken /\ lock.own # o
    /\ lock.st # "held" \/ Dead(view[o])
    /\ Writes([st |-> "held", tok |-> lock.tok + 1, own |-> o, n |-> 0, ses |-> None])
    /\ UNCHANGED <<ses, acq, cli>>

Leave(o) ==
    /\ lock.st = "held" /\ lock.own = o
    /\ Writes([lock EXCEPT !.st = "released", !.own = None])
    /\ UNCHANGED <<ses, acq, cli>>

\* The replica that has made a grant knows the granted beat, and nothing of sessions.
Free(t) ==
    /\ "free" \in Uses
    /\ lock.st = "held" /\ lock.own = t /\ lock.n = 0
    /\ Writes([lock EXCEPT !.st = "released", !.own = None, !.n = 0, !.ses = None])
    /\ UNCHANGED <<ses, acq, cli>>

Accept(c, t) ==
    /\ cli[c].at = "wait" /\ t[1] = c /\ acq[t].ans
    /\ Becomes(c, [cli[c] EXCEPT !.at = "try", !.of = t])
    /\ Called(t, [acq[t] EXCEPT !.ans = FALSE])
    /\ UNCHANGED <<lock, ses, view>>

Is(t) == lock.st = "held" /\ lock.own = t /\ lock.tok = acq[t].tok

\* A heartbeat of the lock itself.
BeatLock(c) ==
    LET m == cli[c] IN
    /\ "beat" \in Uses /\ m.at = "try" /\ ~m.do
    /\ Becomes(c, [m EXCEPT !.do = TRUE, !.sent = 0])
    /\ Called(m.of, [acq[m.of] EXCEPT !.beats = 1])
    /\ UNCHANGED <<lock, ses, view>>

BeatLockApply(t) ==
    /\ acq[t].beats = 1 /\ Is(t) /\ lock.n = 0 /\ lock.ses = None
    /\ Writes([lock EXCEPT !.n = 1])
    /\ cli' = IF cli[t[1]].of = t /\ cli[t[1]].do THEN [cli EXCEPT ![t[1]].got = TRUE] ELSE cli
    /\ UNCHANGED <<ses, acq>>

ConfirmLock(c) ==
    LET m == cli[c] IN
    /\ m.at = "try" /\ m.got
    /\ Becomes(c, [m EXCEPT !.at = "own", !.n = 1, !.do = FALSE, !.sent = 0, !.got = FALSE,
                            !.age = IF Over(m.sent) THEN Old ELSE m.sent])
    /\ UNCHANGED <<lock, ses, acq, view>>

(* The attachment. From its first sending on, the earlier of both deadlines   *)
(* counts; if that session ends before the answer, nothing does.              *)

Attach(c) ==
    LET m == cli[c]  x == <<m.ses, m.n>> IN
    /\ m.up \in {"opening", "open"} /\ m.of # None /\ ~m.do
    /\ m.at \in {"try", "own"} \/ (m.at = "attach" /\ m.under # m.ses)
    /\ Becomes(c, [m EXCEPT !.at = "attach", !.under = m.ses, !.got = FALSE,
                            !.age = CASE "counts from the attachment" \in Wrong -> 0
                                      [] m.at = "attach" /\ "holds over two sessions" \notin Wrong -> Old
                                      [] OTHER -> @])
    /\ Called(m.of, [acq[m.of] EXCEPT !.joins = @ \cup {x}])
    /\ UNCHANGED <<lock, ses, view>>

SeeOpen(t, x) ==
    /\ x \in acq[t].joins \ acq[t].seen /\ ses[x[1]].st = "alive"
    /\ Called(t, [acq[t] EXCEPT !.seen = @ \cup {x}])
    /\ UNCHANGED <<lock, ses, cli, view>>

Told(t, x) ==
    LET m == cli[t[1]] IN
    IF m.at = "attach" /\ m.of = t /\ m.under = x[1] THEN [cli EXCEPT ![t[1]].got = TRUE] ELSE cli

Attached(t, x) == Is(t) /\ lock.ses = x[1] /\ lock.n = IF "keeps the beat" \in Wrong THEN x[2] ELSE x[2] + 1

AttachApply(t, x) ==
    /\ x \in acq[t].seen
    /\ \/ Is(t) /\ lock.n = x[2] /\ lock.ses = None
       \/ "any beat" \in Wrong /\ lock.st = "held" /\ lock.ses = None
       \/ "any session" \in Wrong /\ Is(t) /\ lock.ses \notin {None, x[1]}
    /\ Writes([lock EXCEPT !.own = t, !.ses = x[1], !.n = IF "keeps the beat" \in Wrong THEN x[2] ELSE x[2] + 1])
    /\ cli' = Told(t, x)
    /\ UNCHANGED <<ses, acq>>

AttachAgain(t, x) ==
    /\ x \in acq[t].seen
    /\ Attached(t, x) \/ ("any session answers" \in Wrong /\ Is(t) /\ lock.ses # None)
    /\ cli' = Told(t, x) /\ cli' # cli
    /\ UNCHANGED <<lock, ses, acq, view>>

ConfirmAttached(c) ==
    /\ cli[c].at = "attach" /\ cli[c].got
    /\ Becomes(c, [cli[c] EXCEPT !.at = "under", !.got = FALSE, !.age = IF "counts from the attachment" \in Wrong THEN @ ELSE Old])
    /\ UNCHANGED <<lock, ses, acq, view>>

LoseLock(c) ==
    LET m == cli[c] IN
    /\ \/ m.do /\ ~(Is(m.of) /\ lock.ses = None /\ lock.n \in {m.n, m.n + 1})
       \/ m.at = "attach" /\ ~(Is(m.of) /\ lock.n = m.n /\ lock.ses = None) /\ ~Attached(m.of, <<m.under, m.n>>)
    /\ Becomes(c, Idle(m))
    /\ UNCHANGED <<lock, ses, acq, view>>

\* A release names both beats of the attachment.
Release(c) ==
    LET m == cli[c] IN
    /\ m.at \in {"try", "own", "attach", "under"} /\ <<m.under, m.n>> \notin acq[m.of].rel
    /\ Becomes(c, IF "acts after a release" \in Wrong /\ m.at = "under" THEN m ELSE Idle(m))
    /\ Called(m.of, [acq[m.of] EXCEPT !.rel = @ \cup {<<m.under, m.n>>}])
    /\ UNCHANGED <<lock, ses, view>>

ReleaseApply(t, x) ==
    /\ x \in acq[t].rel
    /\ \/ Is(t) /\ lock.ses = None /\ lock.n = x[2]
       \/ x[1] # None /\ Attached(t, x)
       \/ "release by the token" \in Wrong /\ lock.st = "held" /\ lock.tok = acq[t].tok /\ lock.ses = x[1]
    /\ Writes([lock EXCEPT !.st = "released", !.own = None, !.n = 0, !.ses = None])
    /\ UNCHANGED <<ses, acq, cli>>

\* Its tokens restart.
DeleteLock ==
    /\ "restart" \in Uses /\ lock.st = "released"
    /\ Writes(NoLock)
    /\ UNCHANGED <<ses, acq, cli>>

Forget(c) ==
    /\ "crash" \in Uses /\ cli[c].at # "idle"
    /\ Becomes(c, Idle(cli[c]))
    /\ UNCHANGED <<lock, ses, acq, view>>

-----------------------------------------------------------------------------
Later(m, d) ==
    LET at(age) == IF Over(Aged(age, d)) THEN Old ELSE Aged(age, d) IN
    [m EXCEPT !.first = IF m.call THEN at(@) ELSE 0, !.since = at(@), !.born = at(@),
              !.sent = IF m.do THEN at(@) ELSE 0, !.age = at(@)]
Pass(d) ==
    /\ cli' = [c \in Clients |-> Later(cli[c], d)]
    /\ view' = [c \in Contenders |-> [saw |-> IF lock.ses = None THEN Aged(view[c].saw, d) ELSE view[c].saw,
                                   knows |-> [s \in Ids |-> Aged(view[c].knows[s], d)]]]
    /\ UNCHANGED <<lock, ses, acq>>

\* "begun": to begin with, the client has a grant, and an open record of its first session.
Begun == "begun" \in Uses
One == CHOOSE c \in Clients : TRUE
Init ==
    /\ lock = IF Begun THEN [NoLock EXCEPT !.st = "held", !.tok = 1, !.own = <<One, 1>>] ELSE NoLock
    /\ ses = [s \in Ids |-> IF Begun /\ s = <<One, 1>> THEN [NoSession EXCEPT !.st = "alive"] ELSE NoSession]
    /\ acq = [t \in Acquires |-> IF Begun /\ t = <<One, 1>> THEN [Unsent EXCEPT !.sent = TRUE, !.tok = 1] ELSE Unsent]
    /\ cli = [c \in Clients |->
            IF Begun THEN [Fresh EXCEPT !.up = "opening", !.born = 0, !.ses = <<c, 1>>, !.at = "try", !.of = <<c, 1>>] ELSE Fresh]
    /\ view = [c \in Contenders |-> [saw |-> Unseen, knows |-> [s \in Ids |-> Unseen]]]

Next ==
    \/ Pass(Tick)
    \/ DeleteLock
    \/ \E s \in Ids :
        \/ OpenApply(s) \/ Delete(s)
        \/ \E n \in 0..MaxBeats : BeatApply(s, n) \/ BeatAgain(s, n) \/ CloseApply(s, n)
    \/ \E t \in Acquires :
        \/ Grant(t) \/ Free(t) \/ BeatLockApply(t)
        \/ \E x \in acq[t].joins : SeeOpen(t, x) \/ AttachApply(t, x) \/ AttachAgain(t, x)
        \/ \E x \in acq[t].rel : ReleaseApply(t, x)
    \/ \E c \in Clients :
        \/ Open(c) \/ Beat(c) \/ Confirm(c) \/ Lose(c) \/ Expire(c) \/ Close(c)
        \/ Acquire(c) \/ Double(c) \/ BeatLock(c) \/ ConfirmLock(c)
        \/ Attach(c) \/ ConfirmAttached(c) \/ LoseLock(c) \/ Release(c) \/ Forget(c)
        \/ \E t \in Acquires : Accept(c, t)
    \/ \E c \in Contenders :
        \/ Look(c)
        \/ \E s \in Ids : Peek(c, s) \/ CloseDead(c, s)
    \/ \E o \in Others : Take(o) \/ Leave(o)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties: README.md.                                                    *)

OneHolder ==
    /\ \A c, d \in Clients : Believes(c) /\ Believes(d) => c = d
    /\ \A c \in Clients : Believes(c) => ~(lock.st = "held" /\ lock.own \in Others)

Guarded ==
    \A c \in Clients : Believes(c) =>
        /\ Is(cli[c].of)
        /\ lock.ses # None => ses[lock.ses].st = "alive"

OthersKept == [][lock.own \in Others => lock' = lock \/ lock'.st = "released"]_vars

EndedStays == [][lock.st = "released" => lock'.st # "held" \/ lock'.tok > lock.tok]_vars

ClosedStays ==
    [][\A s \in Ids : ses[s].st = "closed" => ses'[s].st \in {"closed", "deleted"}]_vars

-----------------------------------------------------------------------------
(* Reached: reached-*.cfg.                                                   *)

NeverUnder == ~\E c \in Clients : Believes(c) /\ cli[c].at = "under"

\* An attachment that arrives after its session has ended.
NeverLate == [][\A s \in Ids : lock'.ses = s /\ lock.ses # s => ses[s].st = "alive"]_vars

NeverBeside == ~\E c \in Clients : lock.own \in Others /\ cli[c].at = "under" /\ cli[c].up = "open" /\ Over(cli[c].since)

NeverBoth == ~\E c \in Clients : Believes(c) /\ cli[c].at = "attach"

Symmetry == Permutations(Clients)
=============================================================================
