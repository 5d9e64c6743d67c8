#!/usr/bin/env escript
%% An echo by gen_tcp, a process for each connection.
%%
%% echo.escript once | passive       says `port NUMBER`
-mode(compile).

main([How]) ->
    Options = [binary, {active, false}, {nodelay, true}, {backlog, 1024}],
    {ok, Listener} = gen_tcp:listen(0, Options),
    {ok, Port} = inet:port(Listener),
    io:format("port ~b~n", [Port]),
    admit(Listener, list_to_atom(How)).

admit(Listener, How) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Server = spawn(fun() -> receive go -> serve(How, Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Server),
    Server ! go,
    admit(Listener, How).

serve(once, Socket) ->
    ok = inet:setopts(Socket, [{active, once}]),
    receive
        {tcp, Socket, Data} -> answer(once, Socket, Data);
        {tcp_closed, Socket} -> ok;
        {tcp_error, Socket, _} -> ok
    end;
serve(passive, Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} -> answer(passive, Socket, Data);
        {error, _} -> gen_tcp:close(Socket)
    end.

answer(How, Socket, Data) ->
    case gen_tcp:send(Socket, Data) of
        ok -> serve(How, Socket);
        {error, _} -> gen_tcp:close(Socket)
    end.
