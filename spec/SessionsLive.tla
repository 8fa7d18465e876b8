---------------------------- MODULE SessionsLive ----------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* When the faults stop and processes with sessions no longer want the      *)
(* lock, another process gets it and keeps it.                              *)
EXTENDS Sessions

VARIABLE calm  \* the faults have stopped

Want(p) == p \in Alone

\* Heartbeats and requests do not conflict for ever.
Keeps(p) ==
    /\ ~Want(p)
    /\ \/ /\ proc[p].up # "none" /\ ses[proc[p].id].age >= proc[p].since
          /\ proc[p].since > 0 \/ ses[proc[p].id].req # Nothing
          /\ \A w \in net : OfLock(w)
          /\ Renew(p)
       \/ Renewed(p) \/ Confirm(p)
       \/ (proc[p].up = "open" => Over(proc[p].since)) /\ Leave(p)

\* Work without a lease returns; so do all that no longer want the lock.
Ends(p) ==
    \E k \in Keys :
        \/ (~Believes(p, k) \/ ~Want(p)) /\ Return(p, k)
        \/ Rest(p, k)
        \/ ~Want(p) /\ GiveUp(p, k)

Contends(p) ==
    /\ Want(p)
    /\ \/ \E k \in Keys : Acquire(p, k) \/ Claim(p, k) \/ Look(p, k) \/ Takeover(p, k) \/ Grant(p, k)
       \/ \E s \in Ids : Peek(p, s)
Beats(p) == \E k \in Keys : (proc[p].on[k].age > 0 /\ Heartbeat(p, k)) \/ Beaten(p, k)
Cares(p) == \E s \in Ids : CloseDead(p, s)
Wonders(p) == (\A w \in net : OfLock(w)) /\ \E k \in Keys, s \in Ids : Inquire(p, k, s)
Locks == \E w \in net : ApplyLock(w)
Carries == \E w \in net : ApplySession(w)

\* Replies and heartbeats keep up with time.
Quick ==
    /\ \A w \in net : ~Fits(w)
    /\ \A p \in Procs :
        LET m == proc[p] IN
        /\ m.up \in {"open", "stop"} /\ ~Over(m.since) => m.since + Tick < Shortest(Window)
        /\ Want(p) => ~\E k \in Keys, s \in Ids : Asks(p, k, s) /\ m.knows[s] = Unseen
        /\ \A k \in Keys :
            LET l == m.on[k] IN
            /\ Want(p) /\ Believes(p, k) => l.age + Tick < Shortest(Window)
            /\ Want(p) => l.at # "idle" /\ (l.at = "wait" => l.got = 0 \/ Over(l.age))
Passes == Pass(Tick) /\ Quick /\ proc' # proc

Calm ==
    \/ Passes \/ Locks \/ Carries
    \/ \E p \in Procs : Keeps(p) \/ Disclaim(p) \/ Ends(p) \/ Contends(p) \/ Beats(p) \/ Cares(p) \/ Wonders(p)

LiveInit == Init /\ calm = FALSE
LiveNext ==
    \/ /\ ~calm /\ UNCHANGED calm
       /\ Pass(Tick) \/ Locks \/ Carries \/ \E p \in Procs : ~Want(p) /\ Acts(p)
       /\ \A k \in Keys : lock'[k].tok < MaxToken
    \/ ~calm /\ calm' = TRUE /\ net' = {} /\ UNCHANGED <<lock, ses, proc, last>>
    \/ calm /\ Calm /\ UNCHANGED calm

LiveSpec ==
    /\ LiveInit /\ [][LiveNext]_<<vars, calm>>
    /\ WF_<<vars, calm>>(calm /\ Passes /\ UNCHANGED calm)
    /\ WF_<<vars, calm>>(calm /\ Locks /\ UNCHANGED calm)
    /\ WF_<<vars, calm>>(calm /\ Carries /\ UNCHANGED calm)
    /\ \A p \in Procs :
        /\ WF_<<vars, calm>>(calm /\ Keeps(p) /\ UNCHANGED calm)
        /\ WF_<<vars, calm>>(calm /\ Disclaim(p) /\ UNCHANGED calm)
        /\ WF_<<vars, calm>>(calm /\ Ends(p) /\ UNCHANGED calm)
        /\ WF_<<vars, calm>>(calm /\ Contends(p) /\ UNCHANGED calm)
        /\ WF_<<vars, calm>>(calm /\ Beats(p) /\ UNCHANGED calm)
        /\ WF_<<vars, calm>>(calm /\ Cares(p) /\ UNCHANGED calm)
        /\ SF_<<vars, calm>>(calm /\ Wonders(p) /\ UNCHANGED calm)

Leads == <>calm => <>[](\A k \in Keys : \E p \in Alone : Believes(p, k))
=============================================================================
