------------------------------- MODULE Service -------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* The lock service: clients that have no store, replicas of a server that  *)
(* have no memory, one store behind them, and a network on both sides that  *)
(* loses, delays and repeats what is sent. README.md explains it to those   *)
(* who do not read TLA+.                                                    *)
EXTENDS Integers, TLC

CONSTANTS
    Clients,     \* programs that want the lock
    None,        \* nobody
    Lease,
    DriftNum,
    DriftDen,
    Tick,
    MaxToken,
    MaxAcquires, \* how often acquires of a client are carried out
    MaxBeats,    \* heartbeats of a tenure
    Prompt,      \* TRUE: replicas and the store do all that they can before time passes
    Uses,        \* what else happens: "replay", "ask", "revoke", ...
    Wrong

VARIABLES
    store,
    net,
    acq,         \* acquires: what replicas do for them, and what was called under them
    cli,         \* the clients
    mem,         \* what a replica or a proxy remembers; only mistakes read it
    past         \* what has happened; nobody reads it

vars == <<store, net, acq, cli, mem, past>>

-----------------------------------------------------------------------------
(* Time, as in Tenure.tla, without a grace.                                  *)

Shortest(d) == (d * DriftDen) \div (DriftDen + DriftNum)
Longest(d)  == (d * DriftDen + DriftDen - DriftNum - 1) \div (DriftDen - DriftNum)
Window == (Lease * (DriftDen - DriftNum)) \div (DriftDen + DriftNum)
FreeAfter == Lease \div 3

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Old == Max(Longest(Window), IF Prompt THEN Longest(Lease) ELSE Shortest(Lease))
Aged(a, d) == IF a < 0 THEN a ELSE Min(a + d, Old)
Over(age) == age >= Longest(Window)

-----------------------------------------------------------------------------
(* An acquire is <<client, number>>: its number is the first part of each of *)
(* its beats, and n the second one. Heartbeat n of an acquire follows beat n *)
(* and makes beat n+1; sent again it is the same. The record has own and n   *)
(* as its beat, and req if its holder was asked to step down.                *)

Acquires == Clients \X (1..MaxAcquires)

Absent == [st |-> "absent", tok |-> 0, own |-> None, n |-> 0, req |-> FALSE]
Taken(s) == s.st \in {"held", "reserved"}
Sign(s) == <<s.st, s.tok, s.own, s.n>>

(* A replica that waits for the lock looks whenever the record changes: one  *)
(* that looks later takes over later, and does nothing else differently.     *)

(* What a replica does for an acquire, and the calls under it.               *)
(*   at    none; wait: it contends, for as long as the connection lives;     *)
(*         offer: it has answered with a grant; leave: nobody is there any   *)
(*         more to be answered, and it cleans up; over                       *)
(*   conn  the connection to the client lives, as far as the replica knows   *)
(*   saw   how long ago the sign of life in the record was first seen; of an *)
(*         offer, how long ago it was answered                               *)
(*   vain  for how long it has waited for a lock that nobody may use         *)
(*   tok   what was granted; ans: the client may still get that answer       *)
(*   sent  how many heartbeats were sent, and rel the beats after which a    *)
(*         release was. A call that was sent once may be carried out at any  *)
(*         time, by any replica, and as often as an attacker likes.          *)

Unseen == -1
Unsent == [at |-> "none", conn |-> FALSE, saw |-> Unseen, vain |-> 0, tok |-> 0, ans |-> FALSE, sent |-> 0, rel |-> {}]

(* Clients.                                                                  *)
(*   at     idle; wait: has sent an acquire; try: has a grant, and holds     *)
(*          nothing; hold: a heartbeat was confirmed, and it works           *)
(*   of     the acquire that was granted, and n the beat that was confirmed  *)
(*   call   the call without an answer yet: none, a heartbeat, an acquire    *)
(*   first  how long ago that was first sent                                 *)
(*   since  how long ago the last confirmed one was first sent               *)
(*   ans    the answers to the call that are on their way                    *)
(*   told   it knows that it was asked to step down                          *)

Idle == [at |-> "idle", of |-> None, n |-> 0, call |-> "none", first |-> 0, since |-> Old, ans |-> {}, told |-> FALSE]

Believes(c) == cli[c].at = "hold" /\ ~Over(cli[c].since)
Token(c) == acq[cli[c].of].tok

-----------------------------------------------------------------------------
(* The store. Records have no versions here, as in Sessions.tla: a swap from *)
(* a record that is not in the store any more is dropped, a claim stays.     *)

Write(k, t, n) == [k |-> k, of |-> t, n |-> n]
Grows(w) == w.k \in {"claim", "take"}
Fits(w) ==
    /\ w.k = "claim" => ~Taken(store)
    /\ Grows(w) => store.tok < MaxToken
Claims == {w \in net : w.k = "claim"}

Written(w) ==
    CASE Grows(w) -> [st |-> "held", tok |-> store.tok + 1, own |-> w.of, n |-> 0, req |-> FALSE]
      [] w.k = "beat" -> [store EXCEPT !.st = "held", !.own = w.of, !.n = w.n + 1, !.req = @ /\ "drops requests" \notin Wrong]
      [] w.k = "free" -> [store EXCEPT !.st = "released", !.req = FALSE]

\* When the tenure of an acquire is over nothing can come of its calls any more, but
\* by a mistake.
Forgets == {"any token", "any beat", "over a released record", "over a reserved record"} \cap Wrong = {}
Ended(a, s) == a.tok # 0 /\ (s.tok > a.tok \/ (s.tok = a.tok /\ s.st # "held"))

\* What becomes of an acquire when the record is s. An offer is over when there is another
\* beat: what it would free is not there any more. Nobody contends after the last tenure.
Known(t, a, s) ==
    LET offers == s.st = "held" /\ s.tok = a.tok /\ ((s.own = t /\ s.n = 0) \/ "frees any beat" \in Wrong)
        b == IF a.at = "offer" /\ ~offers THEN [a EXCEPT !.at = "over", !.saw = Unseen, !.conn = FALSE] ELSE a
        c == IF Ended(b, s) /\ Forgets THEN [b EXCEPT !.sent = 0, !.rel = {}, !.ans = FALSE] ELSE b
        last == s.tok = MaxToken /\ a.at \in {"wait", "leave"} /\ s.own # t IN
    IF last THEN [Unsent EXCEPT !.at = "over"] ELSE
    [c EXCEPT !.saw = IF c.at = "wait" /\ Sign(s) # Sign(store) THEN 0 ELSE @,
              !.vain = IF s.tok # store.tok THEN 0 ELSE @]

\* Nobody waits any more for what the claims of such an acquire write. They may come yet,
\* and it does not matter whose they are.
Gone(a, s) == Forgets /\ a.at = "over" /\ (a.tok = 0 \/ Ended(a, s))
Left(ws, as, s) == {IF w.k = "claim" /\ w.of # None /\ Gone(as[w.of], s) THEN [w EXCEPT !.of = None] ELSE w : w \in ws}

\* The answer to a heartbeat, by the record that was written or seen.
Reply(s) == IF s.req THEN "asked" ELSE "ok"
Answered(c, t, n, what) ==
    IF cli[c].of = t /\ cli[c].call = "beat" /\ cli[c].n = n THEN [cli EXCEPT ![c].ans = @ \cup {what}] ELSE cli

Lands(w) ==
    /\ Fits(w)
    /\ store' = Written(w)
    /\ acq' = [t \in Acquires |-> Known(t, acq[t], store')]
    /\ net' = IF store'.tok = MaxToken THEN {} ELSE Left(Claims, acq', store')
    /\ cli' = IF w.k = "beat" THEN Answered(w.of[1], w.of, w.n, Reply(store')) ELSE cli
    /\ past' = IF w.k = "beat" /\ past.laid = store.tok /\ past.due = 0 THEN [past EXCEPT !.due = w.n + 1] ELSE past
    /\ UNCHANGED mem

\* A write that takes its time. A swap that lands late differs from a call that is carried
\* out late in nothing but what its sender has done meanwhile.
Sends(w) == net' = net \cup {w} /\ UNCHANGED <<store, acq, cli, mem, past>>
Does(w) == IF "late" \in Uses THEN Sends(w) ELSE Lands(w)
Apply(w) == w \in net /\ Lands(w)

-----------------------------------------------------------------------------
(* A replica carries out an acquire.                                         *)

Turns(t, a) == acq' = [acq EXCEPT ![t] = a]
Still == UNCHANGED <<store, mem, past>>

\* The first beat of the acquire is in the record: it has got the lock.
First(t) == store.st = "held" /\ store.own = t /\ store.n = 0

\* A call is carried out when it was sent: at once, by two replicas, or long after.
Carry(t) ==
    LET c == t[1] IN
    /\ store.tok < MaxToken
    /\ acq[t].at = "none" /\ (t[2] > 1 => acq[<<c, t[2] - 1>>].at # "none")
    /\ cli[c].at = "wait" \/ ("replay" \in Uses /\ t[2] > 1)
    /\ Turns(t, [acq[t] EXCEPT !.at = "wait", !.conn = TRUE, !.saw = 0])
    /\ UNCHANGED <<net, cli>> /\ Still

Contends(t) == acq[t].at = "wait" /\ (acq[t].conn \/ "waits on" \in Wrong)

Claim(t) ==
    /\ Contends(t) /\ ~Taken(store) /\ Write("claim", t, 0) \notin net
    /\ store.tok < MaxToken
    /\ Sends(Write("claim", t, 0))

Takeover(t) ==
    /\ Contends(t) /\ Taken(store) /\ acq[t].saw >= Shortest(Lease)
    /\ Does(Write("take", t, 0))

\* The answer is on its way. Whether the client gets it the replica does not learn.
Grant(t) ==
    /\ Contends(t) /\ First(t)
    /\ Turns(t, [acq[t] EXCEPT !.at = "offer", !.saw = 0, !.vain = 0, !.tok = store.tok, !.ans = TRUE])
    /\ UNCHANGED <<net, cli>> /\ Still

\* The connection has ended, and the replica sees that: nothing more is sent for it.
HangUp(t) ==
    LET a == acq[t]
        wrote == First(t) \/ \E w \in net : w.of = t IN
    /\ a.at = "wait" /\ a.conn
    /\ wrote \/ Prompt  \* else it is as one that does nothing
    /\ Turns(t, IF "waits on" \in Wrong THEN [a EXCEPT !.conn = FALSE]
                ELSE IF wrote THEN [a EXCEPT !.at = "leave", !.conn = FALSE, !.saw = Unseen, !.vain = 0]
                ELSE [Unsent EXCEPT !.at = "over"])
    /\ UNCHANGED <<net, cli>> /\ Still

\* What was granted, and was never followed by a heartbeat, is freed: after L/3, or at
\* once, if the answer could not be written; what was written for nobody, too.
Overdue(t, age) == Prompt => acq[t].at = "leave" \/ acq[t].saw >= age
Free(t) ==
    LET a == acq[t]
        mine == First(t) \/ ("frees any beat" \in Wrong /\ a.at = "offer") IN
    /\ a.at = "leave" \/ (a.at = "offer" /\ "keeps what is not used" \notin Wrong)
    /\ mine /\ Overdue(t, Shortest(FreeAfter))
    /\ Does(Write("free", t, 0))

\* It has cleaned up, or has tried for long enough; or the replica crashes.
Rest(t) ==
    LET a == acq[t] IN
    /\ a.at # "over"
    /\ \/ a.at = "leave" /\ ~First(t) /\ ~\E w \in net : w.of = t
       \/ a.at \in {"leave", "offer"} /\ "crash" \in Uses
    /\ Turns(t, [a EXCEPT !.at = "over", !.conn = FALSE, !.saw = Unseen])
    /\ net' = Left(net, acq', store)
    /\ UNCHANGED cli /\ Still

-----------------------------------------------------------------------------
(* Any replica carries out a heartbeat or a release, by the record alone.    *)

\* The record is held, of that token, and has the beat that the call follows.
Follows(t, n) ==
    /\ \/ store.st = "held" \/ (store.st = "released" /\ "over a released record" \in Wrong)
       \/ store.st = "reserved" /\ "over a reserved record" \in Wrong
    /\ store.tok = acq[t].tok \/ "any token" \in Wrong
    /\ \/ store.own = t /\ store.n = n
       \/ store.own = t /\ store.n # n + 1 /\ "any beat" \in Wrong
       \/ store.st = "reserved"

Heartbeat(t, n) ==
    /\ n < acq[t].sent /\ Follows(t, n)
    /\ Does(Write("beat", t, n))

\* The beat that the call makes is there already: it was carried out before.
Repeated(t, n) ==
    /\ n < acq[t].sent
    /\ store.st = "held" /\ store.tok = acq[t].tok /\ store.own = t /\ store.n = n + 1
    /\ cli' = Answered(t[1], t, n, Reply(store)) /\ cli' # cli
    /\ UNCHANGED <<net, acq>> /\ Still

Release(t, n) ==
    /\ n \in acq[t].rel
    /\ store.st = "held" /\ store.tok = acq[t].tok /\ store.own = t /\ store.n = n
    /\ Does(Write("free", t, n))

-----------------------------------------------------------------------------
(* Operators. What they lay into the record changes its version, so that     *)
(* swaps under way are dropped; the beat stays.                              *)

Ask ==
    /\ "ask" \in Uses /\ store.st = "held" /\ ~store.req
    /\ store' = [store EXCEPT !.req = TRUE] /\ net' = Claims
    /\ past' = [past EXCEPT !.laid = store.tok, !.due = 0]
    /\ UNCHANGED <<acq, cli, mem>>

\* The lock is taken from a living holder, and kept for nobody until its lease is over.
Revoke ==
    /\ "revoke" \in Uses /\ store.st = "held"
    /\ store' = [store EXCEPT !.st = "reserved", !.own = None, !.n = 0, !.req = FALSE]
    /\ acq' = [t \in Acquires |-> Known(t, acq[t], store')]
    /\ net' = Left(Claims, acq', store')
    /\ UNCHANGED <<cli, mem, past>>

-----------------------------------------------------------------------------
(* Clients.                                                                  *)

Becomes(c, m) == cli' = [cli EXCEPT ![c] = m]
Called(t, a) == acq' = [acq EXCEPT ![t] = Known(t, a, store)]

Acquire(c) ==
    /\ cli[c].at = "idle" /\ acq[<<c, MaxAcquires>>].at = "none" /\ store.tok < MaxToken
    /\ Becomes(c, [Idle EXCEPT !.at = "wait"])
    /\ UNCHANGED <<net, acq>> /\ Still

\* The grant arrives, in time or not. It is no lease.
Accept(c, t) ==
    /\ cli[c].at = "wait" /\ t[1] = c /\ acq[t].ans
    /\ Becomes(c, IF "counts from the grant" \in Wrong THEN [Idle EXCEPT !.at = "hold", !.of = t, !.since = 0]
                  ELSE [Idle EXCEPT !.at = "try", !.of = t])
    /\ Turns(t, [acq[t] EXCEPT !.ans = FALSE])
    /\ past' = IF "counts from the grant" \in Wrong THEN [past EXCEPT !.last = acq[t].tok] ELSE past
    /\ UNCHANGED <<store, net, mem>>

\* The clock is read, and then the heartbeat sent.
Beat(c) ==
    LET m == cli[c] IN
    /\ m.at = "try" \/ Believes(c)
    /\ m.call = "none" /\ m.n < MaxBeats
    /\ Becomes(c, [m EXCEPT !.call = "beat", !.first = 0])
    /\ Called(m.of, [acq[m.of] EXCEPT !.sent = Max(@, m.n + 1)])
    /\ UNCHANGED net /\ Still

\* Without an answer it is sent again, and nothing changes by that: any call may be
\* carried out again.
Again(c) ==
    LET m == cli[c] IN
    /\ "counts from the repeated call" \in Wrong /\ m.call = "beat" /\ m.first > 0
    /\ Becomes(c, [m EXCEPT !.first = 0])
    /\ UNCHANGED <<net, acq>> /\ Still

\* The answer is read, perhaps long after it was given. The lease counts from before the
\* call was first sent. What is expired stays so.
Confirm(c, a) ==
    LET m == cli[c]
        from == IF "counts from the answer" \in Wrong THEN 0 ELSE m.first
        final == m.at = "hold" /\ Over(m.since) /\ "expired renews" \notin Wrong
        since == IF final \/ Over(from) THEN Old ELSE from IN
    /\ a \in m.ans
    /\ Becomes(c, [m EXCEPT !.at = "hold", !.n = IF m.call = "beat" THEN @ + 1 ELSE @, !.call = "none", !.first = 0,
                            !.since = since, !.ans = {}, !.told = @ \/ a = "asked"])
    /\ past' = IF m.at = "try" /\ ~Over(since) THEN [past EXCEPT !.last = Token(c)] ELSE past
    /\ mem' = IF "caches" \in Wrong THEN [mem EXCEPT !.tok = Token(c)] ELSE mem
    /\ acq' = [t \in Acquires |-> [acq[t] EXCEPT !.vain = IF Over(since) THEN @ ELSE 0]]
    /\ UNCHANGED <<store, net>>

\* "Lost" is the answer when neither beat is there; it is final.
Lose(c) ==
    LET m == cli[c] IN
    /\ m.call = "beat"
    /\ ~(store.st = "held" /\ store.tok = Token(c) /\ store.own = m.of /\ store.n \in {m.n, m.n + 1})
    /\ Becomes(c, Idle)
    /\ UNCHANGED <<net, acq>> /\ Still

\* The clock is fast: the lease ends sooner than by a slow one.
Expire(c) ==
    /\ Believes(c) /\ cli[c].since >= Shortest(Window)
    /\ Becomes(c, [cli[c] EXCEPT !.since = Old])
    /\ UNCHANGED <<net, acq>> /\ Still

\* Its work has returned. It releases after the newest beat that it has sent, and, if
\* that is not there, after the one that was confirmed. It may get an answer, a 5xx,
\* or none: it never acts on this lock again.
Return(c) ==
    LET m == cli[c]
        newest == IF m.call = "beat" THEN {m.n, m.n + 1} ELSE {m.n} IN
    /\ m.at \in {"try", "hold"}
    /\ ~(newest \subseteq acq[m.of].rel)
    /\ Becomes(c, IF "acts after a 5xx" \in Wrong /\ m.at = "hold" THEN m ELSE Idle)
    /\ Called(m.of, [acq[m.of] EXCEPT !.rel = @ \cup newest])
    /\ UNCHANGED net /\ Still

\* It crashes, or gives up; of what it has sent anything may come.
Stop(c) ==
    /\ cli[c].at # "idle"
    /\ Becomes(c, Idle)
    /\ UNCHANGED <<net, acq>> /\ Still

-----------------------------------------------------------------------------
(* Mistakes of servers and proxies.                                          *)

\* A replica remembers a record, and answers heartbeats by that.
Remember ==
    /\ "answers from memory" \in Wrong /\ mem.rec # store
    /\ mem' = [mem EXCEPT !.rec = store]
    /\ UNCHANGED <<store, net, acq, cli, past>>
Recall(t, n) ==
    /\ "answers from memory" \in Wrong /\ n < acq[t].sent
    /\ mem.rec.st = "held" /\ mem.rec.tok = acq[t].tok /\ mem.rec.own = t /\ mem.rec.n = n
    /\ cli' = Answered(t[1], t, n, Reply(mem.rec))
    /\ mem' = [mem EXCEPT !.rec.n = n + 1]
    /\ UNCHANGED <<store, net, acq, past>>

\* A heartbeat is a GET, whose address names lock and token: a proxy answers it by what
\* it was answered before.
FromCache(c) ==
    /\ "caches" \in Wrong /\ cli[c].call = "beat" /\ mem.tok = Token(c)
    /\ Becomes(c, [cli[c] EXCEPT !.ans = @ \cup {"ok"}])
    /\ UNCHANGED <<net, acq>> /\ Still

\* A client that has the lock sends its acquire again. The replica finds that it has it,
\* and says so; the client counts from before it sent that.
Reacquire(c) ==
    /\ "an acquire renews" \in Wrong /\ Believes(c) /\ cli[c].call = "none"
    /\ Becomes(c, [cli[c] EXCEPT !.call = "acquire", !.first = 0])
    /\ UNCHANGED <<net, acq>> /\ Still
Regrant(c) ==
    /\ cli[c].call = "acquire" /\ store.st = "held" /\ store.own = cli[c].of
    /\ Becomes(c, [cli[c] EXCEPT !.ans = {"ok"}])
    /\ UNCHANGED <<net, acq>> /\ Still

-----------------------------------------------------------------------------
(* Time passes. Where replicas are prompt, it does when there is nothing that *)
(* one of them or the store has to do; what is still on its way is lost then.  *)

Quick ==
    /\ \A w \in net : ~Fits(w)
    /\ \A t \in Acquires :
        /\ ~ENABLED Grant(t) /\ ~ENABLED Claim(t)
        /\ ENABLED Takeover(t) => acq[t].saw < Longest(Lease)
        /\ ENABLED Free(t) => ~Overdue(t, Longest(FreeAfter))

\* Only what is counted from grows older.
Later(t, d) ==
    LET a == acq[t]
        unused == Taken(store) /\ ~\E c \in Clients : Believes(c) IN
    [a EXCEPT !.saw = IF a.at = "wait" \/ Prompt THEN Aged(@, d) ELSE @,
              !.vain = IF Prompt /\ a.at = "wait" /\ a.conn /\ unused THEN Min(@ + d, 2 * Longest(Lease) + Tick) ELSE 0]
Elapsed(m, d) ==
    LET at(age) == IF Over(Aged(age, d)) THEN Old ELSE Aged(age, d)
        final == m.at = "hold" /\ Over(Aged(m.since, d)) /\ "expired renews" \notin Wrong IN
    [m EXCEPT !.first = IF m.call = "none" THEN 0 ELSE IF final THEN Old ELSE at(@),
              !.since = IF m.at = "hold" THEN at(@) ELSE @]
Nobodys(t) == Prompt /\ First(t) /\ acq[t].at \in {"wait", "offer", "leave"} /\ ~acq[t].conn
Pass(d) ==
    /\ Prompt => Quick
    /\ acq' = [t \in Acquires |-> Later(t, d)]
    /\ cli' = [c \in Clients |-> Elapsed(cli[c], d)]
    /\ net' = IF Prompt THEN {} ELSE net
    /\ past' = [past EXCEPT !.idle = @ \/ \E t \in Acquires : Nobodys(t)]
    /\ UNCHANGED <<store, mem>>

Init ==
    /\ store = Absent
    /\ net = {}
    /\ acq = [t \in Acquires |-> Unsent]
    /\ cli = [c \in Clients |-> Idle]
    /\ mem = [rec |-> Absent, tok |-> 0]
    /\ past = [last |-> 0, laid |-> 0, due |-> 0, idle |-> FALSE]

Next ==
    \/ Pass(Tick)
    \/ \E w \in net : Apply(w)
    \/ Ask \/ Revoke \/ Remember
    \/ \E t \in Acquires :
        \/ Carry(t) \/ Claim(t) \/ Takeover(t) \/ Grant(t) \/ HangUp(t) \/ Free(t) \/ Rest(t)
        \/ \E n \in 0..MaxBeats : Heartbeat(t, n) \/ Repeated(t, n) \/ Release(t, n) \/ Recall(t, n)
    \/ \E c \in Clients :
        \/ Acquire(c) \/ Beat(c) \/ Again(c) \/ Lose(c) \/ Expire(c) \/ Return(c) \/ Stop(c)
        \/ FromCache(c) \/ Reacquire(c) \/ Regrant(c)
        \/ \E t \in Acquires : Accept(c, t)
        \/ \E a \in {"ok", "asked"} : Confirm(c, a)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold. README.md says each in words.                             *)

OneHolder == \A c, d \in Clients : Believes(c) /\ Believes(d) => c = d

Guarded ==
    \A c \in Clients : Believes(c) =>
        Taken(store) /\ store.tok = Token(c) /\ (store.st = "held" => store.own = cli[c].of)

GrantsRise == [][past'.last # past.last => past'.last > past.last]_vars

TokensRise == [][store'.tok >= store.tok]_vars

EndedStays == [][store.st \in {"released", "reserved"} => Sign(store') = Sign(store) \/ store'.tok > store.tok]_vars

ExpiredStays ==
    [][\A c \in Clients :
        LET m == cli[c]  n == cli'[c] IN
        m.at = "hold" /\ Over(m.since) /\ n.at = "hold" /\ n.of = m.of => Over(n.since)]_vars

RequestStays == [][store.req /\ store'.st = "held" /\ store'.tok = store.tok => store'.req]_vars

Told ==
    \A c \in Clients :
        cli[c].at = "hold" /\ Token(c) = past.laid /\ past.due # 0 /\ cli[c].n >= past.due => cli[c].told

(* Where replicas are prompt:                                                *)

Freed == \A t \in Acquires : acq[t].vain <= 2 * Longest(Lease)

UnusedFreed == \A t \in Acquires : acq[t].at = "offer" => acq[t].saw <= Longest(FreeAfter)

Wanted == ~past.idle

-----------------------------------------------------------------------------
(* What must be reached, or what holds says little: each of these must be    *)
(* refuted, by a configuration that says it in words.                        *)

NeverBelieves == \A c \in Clients : ~Believes(c)

NeverBeside == ~\E c, d \in Clients : Believes(c) /\ c # d /\ cli[d].at = "hold" /\ Over(cli[d].since)

NeverFreed ==
    [][\A t \in Acquires :
        acq[t].at = "offer" /\ acq[t].sent = 0 /\ acq[t].rel = {} /\ First(t) => store'.st # "released"]_vars

NeverTold == ~\E c \in Clients : Believes(c) /\ cli[c].told

NeverTwice == ~\E c \in Clients : cli[c].ans = {"ok", "asked"}

NeverReopened == ~(store.st = "held" /\ store.own = None)

NeverLate == \A t \in Acquires : acq[t].vain <= Longest(Lease)

Symmetry == Permutations(Clients)
=============================================================================
