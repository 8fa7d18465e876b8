-------------------------------- MODULE Guard --------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* One lock on an engine that loses writes which it has answered: "Engines  *)
(* that lose what they have answered" in driver/doc.go. Time is in ticks of *)
(* one clock; the durations allow for clock rates. A reply that comes is a  *)
(* poll at any later instant. A write may be carried out late, and again,   *)
(* by an old and by a new server.                                           *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Clients,
    None,
    Lease,      \* a holder believes for less than this after it sent
    Takes,      \* a contender takes over after it has seen the same beat for this time
    Opens,      \* a client opens a life that it has seen for this time
    CutOff,     \* a server that is cut off writes for this time after its successor began
    MaxLife,    \* the number of servers, each of which begins a life of the engine
    MaxWrites,  \* the writes of each client
    Once,       \* the clients that write once
    Step,       \* the difference between the bases of two lives: more than all grants of one
    Uses,       \* "cut off", "again", "release"
    Wrong

VARIABLES
    server,
    replica,    \* what the next server will begin with
    now,        \* the number of the primary
    net,
    client,
    last        \* the highest token of a grant that was believed

vars == <<server, replica, now, net, client, last>>

Servers == 1..MaxLife
Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b

-----------------------------------------------------------------------------
(* What a server keeps: the record, which life is open, and the base of its *)
(* tokens. by is the version of the grant, with which all beats of the term *)
(* begin; for is the client that the lock is reserved for.                  *)

Empty == [st |-> "absent", tok |-> 0, ver |-> None, by |-> None, for |-> None, open |-> 1, base |-> 0]
Off == [up |-> "no", age |-> 0, life |-> 0, s |-> Empty]

Up(i) == server[i].up \in {"primary", "cut off"}
Closed(i) == server[i].s.open # server[i].life

\* In a closed life a lock that is not held is shown as reserved for nobody.
Shown(i) ==
    LET s == server[i].s IN
    IF Closed(i) /\ s.st # "held" /\ "reservation shown" \notin Wrong
    THEN [s EXCEPT !.st = "reserved", !.ver = <<"life", server[i].life>>, !.for = None] ELSE s

(* A client: its lease (on, age, tok, ver, by), the beats that it has sent  *)
(* and not seen (sent), what it has seen of another's record (poll), and    *)
(* how long ago it first saw each life after the first (-1: never).         *)

NoPoll == [ver |-> None, tok |-> 0, own |-> FALSE, life |-> 0, age |-> 0]
Idle == [on |-> FALSE, age |-> 0, tok |-> 0, ver |-> None, by |-> None, sent |-> {}, poll |-> NoPoll,
         seen |-> [e \in 2..MaxLife |-> -1], writes |-> 0]
Ended(m) == [Idle EXCEPT !.seen = m.seen, !.writes = m.writes]

Believes(c) == client[c].on /\ client[c].age < Lease

-----------------------------------------------------------------------------
(* Clients send.                                                            *)

MayOpen(m) == {e \in 2..MaxLife : m.seen[e] >= Opens}

\* What can never be carried out is forgotten.
Living(ws) ==
    LET vs == {replica.ver} \cup {server[i].s.ver : i \in Servers} \cup {w.ver : w \in ws}
              \cup {<<"life", server[i].life>> : i \in Servers} IN
    {w \in ws : w.k = "claim" \/ w.prev \in vs}

Write(c, k, prev, tok, opens) ==
    [k |-> k, ver |-> <<c, client[c].writes + 1>>, prev |-> prev, tok |-> tok, opens |-> opens]
Send(c, w, m) ==
    /\ client[c].writes < IF c \in Once THEN 1 ELSE MaxWrites
    /\ net' = Living(net) \cup {w}
    /\ client' = [client EXCEPT ![c] = [m EXCEPT !.writes = @ + 1]]
    /\ UNCHANGED <<server, replica, now, last>>
Tries(c, w) == Send(c, w, [client[c] EXCEPT !.sent = @ \cup {[ver |-> w.ver, age |-> 0]}])

Claim(c) ==
    /\ ~client[c].on /\ client[c].poll.ver = None
    /\ Tries(c, Write(c, "claim", None, 0, MayOpen(client[c])))

\* Who has the reservation takes the lock without waiting.
Takeover(c) ==
    LET p == client[c].poll IN
    /\ ~client[c].on /\ p.ver # None /\ (p.age >= Takes \/ p.own)
    /\ Tries(c, Write(c, "take", p.ver, p.tok,
             MayOpen(client[c]) \cup (IF "inferred" \in Wrong THEN {p.life} ELSE {})))

Heartbeat(c) ==
    /\ Believes(c) /\ client[c].sent = {}
    /\ Tries(c, Write(c, "beat", client[c].ver, client[c].tok, MayOpen(client[c])))

Release(c) ==
    /\ "release" \in Uses /\ client[c].on
    /\ Send(c, Write(c, "release", client[c].ver, client[c].tok, MayOpen(client[c])), Ended(client[c]))

-----------------------------------------------------------------------------
(* A server carries out a write.                                            *)

Raises(w) == w.k = "claim" \/ (w.k = "take" /\ "claims alone" \notin Wrong)

Free(s) == s.st \in {"absent", "released"}
Fits(w, s, i) ==
    CASE w.k = "claim" -> Free(s)
      [] w.k = "take" /\ w.prev[1] = "life" -> s.st # "held" /\ w.prev[2] = server[i].life /\ w.tok = s.tok
      [] w.k = "take" -> s.st \in {"held", "reserved"} /\ w.prev = s.ver /\ w.tok = s.tok
      [] OTHER -> s.st = "held" /\ w.prev = s.ver /\ w.tok = s.tok

\* The base comes from a clock, as if each life began a step after the one before.
Base(s, i) ==
    CASE "not raised" \in Wrong -> 0
      [] "by a step" \in Wrong -> s.base + Step
      [] "same base" \in Wrong -> Step
      [] OTHER -> (i - 1) * Step
Opened(w, i) ==
    LET s == server[i].s IN
    IF Closed(i) /\ server[i].life \in w.opens THEN [s EXCEPT !.open = server[i].life, !.base = Base(s, i)] ELSE s

Written(w, s) ==
    CASE w.k \in {"claim", "take"} ->
            [s EXCEPT !.st = "held", !.tok = @ + 1, !.ver = w.ver, !.by = w.ver, !.for = None]
      [] w.k = "beat" -> [s EXCEPT !.ver = w.ver]
      [] w.k = "release" -> [s EXCEPT !.st = "released", !.ver = w.ver]

\* RaisedAtOpening: a conflict that changes the record.
Raised(s, i) ==
    [s EXCEPT !.st = "released", !.tok = s.base, !.ver = <<"raised", server[i].life>>, !.by = None, !.for = None]

\* The replica has it at once, or has what it had.
Stores(i, s) ==
    /\ server' = [server EXCEPT ![i].s = s]
    /\ replica' \in IF i = now THEN {replica, s} ELSE {replica}
    /\ UNCHANGED <<now, net, client, last>>

Apply(w, i) ==
    LET s == Opened(w, i)
        becomes ==
            CASE ~Fits(w, s, i) -> s
              [] Raises(w) /\ s.open # server[i].life /\ "no guard" \notin Wrong -> s
              [] w.k \in {"claim", "take"} /\ s.tok < s.base -> Raised(s, i)
              [] OTHER -> Written(w, s) IN
    Up(i) /\ becomes # server[i].s /\ Stores(i, becomes)

\* Wrong: whether the life is open is tested apart from the write, at a former server.
ApplyApart(w, i) ==
    /\ "apart" \in Wrong /\ Up(i) /\ Raises(w) /\ Fits(w, server[i].s, i)
    /\ \E j \in Servers : j < i /\ ~Closed(j)
    /\ Stores(i, Written(w, server[i].s))

-----------------------------------------------------------------------------
(* Clients learn, from reads and from the answers to writes. Those that are *)
(* late are polls of a later state.                                         *)

Seen(m, i) ==
    IF server[i].life > 1 /\ m.seen[server[i].life] < 0 THEN [m EXCEPT !.seen[server[i].life] = 0] ELSE m
Becomes(c, m) == client' = [client EXCEPT ![c] = m]

\* The answer to a call for another lock.
Other(c, i) ==
    /\ Up(i) /\ client[c] # Seen(client[c], i)
    /\ Becomes(c, Seen(client[c], i))
    /\ UNCHANGED <<server, replica, now, net, last>>

Poll(c, i) ==
    LET m == Seen(client[c], i)
        r == Shown(i)
        granted == {w \in m.sent : r.st = "held" /\ w.ver = r.ver /\ w.age < Lease}
        life == server[i].life
        same == m.poll.ver = r.ver /\ m.poll.tok = r.tok /\ (m.poll.life = life \/ "polls carried" \in Wrong) IN
    /\ Up(i) /\ ~m.on
    /\ IF granted # {}
       THEN \E w \in granted :
            /\ Becomes(c, [Ended(m) EXCEPT !.on = TRUE, !.age = w.age, !.tok = r.tok, !.ver = r.ver, !.by = r.by])
            /\ last' = Max(last, r.tok)
       ELSE /\ Becomes(c, [m EXCEPT !.poll =
                    IF Free(r) THEN NoPoll
                    ELSE [ver |-> r.ver, tok |-> r.tok, own |-> r.for = c, life |-> life,
                          age |-> IF same THEN m.poll.age ELSE 0]])
            /\ UNCHANGED last
    /\ client' # client
    /\ UNCHANGED <<server, replica, now, net>>

OfTerm(m, r) == r.st = "held" /\ r.tok = m.tok /\ r.by = m.by

Confirm(c, i) ==
    LET m == client[c]
        r == server[i].s IN
    /\ Up(i) /\ Believes(c) /\ OfTerm(m, r)
    /\ \E w \in m.sent :
        /\ w.ver = r.ver
        /\ Becomes(c, [Seen(m, i) EXCEPT !.age = Min(@, w.age), !.ver = r.ver, !.sent = {}])
    /\ UNCHANGED <<server, replica, now, net, last>>

\* The engine shows an earlier beat: the holder goes on from there, and its lease counts as before.
GoesBack(c, i) ==
    LET m == client[c]
        r == server[i].s IN
    /\ Up(i) /\ Believes(c) /\ OfTerm(m, r) /\ "older beat" \notin Wrong
    /\ r.ver # m.ver /\ \A w \in m.sent : w.ver # r.ver
    /\ Becomes(c, [Seen(m, i) EXCEPT !.ver = r.ver, !.sent = {}])
    /\ UNCHANGED <<server, replica, now, net, last>>

Lost(c, i) ==
    LET m == client[c]
        r == server[i].s IN
    /\ Up(i) /\ Believes(c)
    /\ ~OfTerm(m, r) \/ ("older beat" \in Wrong /\ r.ver # m.ver /\ \A w \in m.sent : w.ver # r.ver)
    /\ Becomes(c, Ended(Seen(m, i)))
    /\ UNCHANGED <<server, replica, now, net, last>>

-----------------------------------------------------------------------------
(* Failover, and time.                                                      *)

\* What nobody reads is forgotten.
Kept == "again" \in Uses \/ "apart" \in Wrong
Stopped(i) == IF Kept THEN [server[i] EXCEPT !.up = "down", !.age = 0] ELSE [Off EXCEPT !.up = "down"]

\* The name of the new life is new.
Names ==
    {now + 1} \cup (IF "name kept" \in Wrong THEN {server[now].life} ELSE {})
    \cup (IF "name of a sibling" \in Wrong /\ now > 1 THEN {server[now].life} ELSE {})
    \cup (IF "name again" \in Wrong /\ now > 1 THEN {server[now - 1].life} ELSE {})

\* "again": an earlier primary, with what it had.
Begins == {replica} \cup (IF "again" \in Uses THEN {server[i].s : i \in 1..now - 1} ELSE {})

FailOver ==
    /\ now < MaxLife /\ now' = now + 1
    /\ \E s \in Begins, life \in Names :
        server' = [server EXCEPT
            ![now] = IF "cut off" \in Uses THEN [@ EXCEPT !.up = "cut off", !.age = 0] ELSE Stopped(now),
            ![now + 1] = [up |-> "primary", age |-> 0, life |-> life,
                          s |-> IF "opens by itself" \in Wrong THEN [s EXCEPT !.open = life] ELSE s]]
    /\ UNCHANGED <<replica, net, client, last>>

\* An expired holder holds no more, and nobody believes what was sent a lease ago.
Aged(m) ==
    LET seen == [e \in 2..MaxLife |-> IF m.seen[e] < 0 THEN -1 ELSE Min(m.seen[e] + 1, Opens)] IN
    IF m.on /\ m.age + 1 >= Lease THEN [Ended(m) EXCEPT !.seen = seen]
    ELSE [m EXCEPT !.age = IF m.on THEN @ + 1 ELSE 0,
                   !.sent = {[w EXCEPT !.age = @ + 1] : w \in {v \in @ : v.age + 1 < Lease}},
                   !.poll.age = IF m.poll.ver = None THEN 0 ELSE Min(@ + 1, Takes),
                   !.seen = seen]

Tick ==
    /\ client' = [c \in Clients |-> Aged(client[c])]
    /\ server' = [i \in Servers |->
            IF server[i].up # "cut off" \/ "no bound" \in Wrong THEN server[i]
            ELSE IF server[i].age >= CutOff THEN Stopped(i) ELSE [server[i] EXCEPT !.age = @ + 1]]
    /\ <<client', server'>> # <<client, server>>
    /\ UNCHANGED <<replica, now, net, last>>

-----------------------------------------------------------------------------
Begin(s, p) ==
    /\ server = [i \in Servers |-> IF i = 1 THEN [Off EXCEPT !.up = "primary", !.life = 1, !.s = s] ELSE Off]
    /\ replica = s
    /\ now = 1
    /\ net = {}
    /\ client = [c \in Clients |-> [Idle EXCEPT !.poll = p]]
    /\ last = s.tok
Init == Begin(Empty, NoPoll)

\* Shorter ways: the lock is reserved for one client, or its holder is dead, as all clients have seen.
Reserved ==
    [Empty EXCEPT !.st = "reserved", !.tok = 1, !.ver = <<None, 1>>, !.for = CHOOSE c \in Clients \ Once : TRUE]
Watched(s) == [NoPoll EXCEPT !.ver = s.ver, !.tok = s.tok, !.life = 1, !.age = Takes]
Dead == [Empty EXCEPT !.st = "held", !.tok = 1, !.ver = <<None, 1>>]

Next ==
    \/ Tick \/ FailOver
    \/ \E w \in net, i \in Servers : Apply(w, i) \/ ApplyApart(w, i)
    \/ \E c \in Clients :
        \/ Claim(c) \/ Takeover(c) \/ Heartbeat(c) \/ Release(c)
        \/ \E i \in Servers : Other(c, i) \/ Poll(c, i) \/ Confirm(c, i) \/ GoesBack(c, i) \/ Lost(c, i)

Spec == Init /\ [][Next]_vars
SpecReserved == Begin(Reserved, Watched(Reserved)) /\ [][Next]_vars
SpecDead == Begin(Dead, Watched(Dead)) /\ [][Next]_vars
Symmetry == Permutations(Clients)

-----------------------------------------------------------------------------
(* Properties: README.md.                                                    *)

OneHolder == \A c, d \in Clients : Believes(c) /\ Believes(d) => c = d

GrantsRise == [][\A c \in Clients : client'[c].on /\ ~client[c].on => client'[c].tok > last]_vars

NoFalseLoss == [][\A c \in Clients : Lost(c, now) => ~OfTerm(client[c], server[now].s)]_vars

Useful ==
    \A c \in Clients :
        client[c].poll.age >= Takes /\ client[c].poll.life > 1 => client[c].poll.life \in MayOpen(client[c])

-----------------------------------------------------------------------------
(* Reached: reached-guard-*.cfg.                                             *)

\* A client believes, and server i has its latest beat.
Knows(c, i) == Believes(c) /\ server[i].s.ver = client[c].ver

NeverGranted == ~\E c \in Clients : now > 1 /\ Knows(c, now) /\ client[c].tok > (now - 1) * Step
NeverSurvives ==
    ~\E c \in Clients : now > 1 /\ Knows(c, now) /\ Closed(now) /\ server[now].s.ver # replica.ver
NeverBack ==
    ~\E c \in Clients :
        now > 1 /\ Knows(c, now) /\ client[c].ver = <<c, 3>> /\ client[c].by = <<c, 1>> /\ replica.ver = <<c, 1>>
NeverCutOff ==
    ~\E c \in Clients, i \in Servers : i < now /\ Up(i) /\ Knows(c, i) /\ server[now].s.tok < client[c].tok
NeverOpens ==
    ~\E c \in Clients : now > 1 /\ Knows(c, now) /\ ~Closed(now) /\ client[c].tok <= (now - 1) * Step
=============================================================================
